"""JSON Schemas of servers, evaluated. They are not trusted.

References out of a schema are never followed, patterns are evaluated by RE2 in linear time, and a check ends after so
many steps and so much of the processor's time: steps end a check that is long, the time one whose steps are.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from time import thread_time
from typing import Any, Final

import re2
from jsonschema import ValidationError
from jsonschema.exceptions import best_match
from jsonschema.validators import Draft202012Validator, extend, validator_for
from referencing import Registry

log = logging.getLogger(__name__)

_MAX_SECONDS: Final = 0.25
"""Of the processor's time."""
_SMALL: Final = 16 * 1024
"""Characters of a value whose check no honest schema makes long."""
_MAX_ERRORS: Final = 20
_MAX_TEXT: Final = 300
_MAX_NAMES: Final = 8
_UNMETERED: Final = ("unevaluatedProperties", "unevaluatedItems")
"""Keywords whose evaluation walks the schema by itself, uncounted: they are left to the server."""


class _TooLong(Exception):
    """The check took more steps than it may."""


@dataclass(kw_only=True)
class _Meter:
    left: int
    until: float
    """By the clock of the thread's use of the processor."""


_METER: Final[ContextVar[_Meter]] = ContextVar("schema_meter")

_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class BoundedValidator:
    """Evaluates one schema. One that takes too long even for small values is not evaluated again."""

    def __init__(self, schema: Mapping[str, Any], *, name: str, max_steps: int) -> None:
        self._name = name
        """Whose schema it is, for the log."""
        self._max_steps = max_steps
        self._validator: Any = None
        try:
            kind = validator_for(schema, default=Draft202012Validator)
            self._validator = _metered(kind)(schema, registry=Registry())  # with no way to retrieve anything
        except Exception as error:  # one whose $schema or $id is nonsense fails in any way
            log.info("the schema of %s can't be evaluated: %s", name, type(error).__name__)

    def error(self, value: Any) -> ValidationError | None:
        """What is wrong with a value; none where nothing is, or where it can't be told within the bounds."""
        if self._validator is None:
            return None
        found: list[ValidationError] = []
        mark = _METER.set(_Meter(left=self._max_steps, until=thread_time() + _MAX_SECONDS))
        try:
            # one by one: those that were found count also where the rest takes too long
            for error in islice(self._validator.iter_errors(value), _MAX_ERRORS):
                found.append(error)  # noqa: PERF402
            return _best(found)
        except _TooLong:
            log.info("a value takes too long to judge by the schema of %s", self._name)
            if not found and len(json.dumps(value)) <= _SMALL:
                self._validator = None
            return found[0] if found else None
        except Exception as error:  # one that loops, points elsewhere or is no schema fails in any way
            log.info("the schema of %s can't be evaluated: %s", self._name, type(error).__name__)
            return None
        finally:
            _METER.reset(mark)

    def refusing(self, value: Any, parts: Mapping[str, Any]) -> set[str]:
        """The names of those parts of the schema that don't take a value; of none where it can't be told."""
        if self._validator is None:
            return set()
        mark = _METER.set(_Meter(left=self._max_steps, until=thread_time() + _MAX_SECONDS))
        try:
            return {name for name, part in parts.items() if self._refuses(value, part)}
        finally:
            _METER.reset(mark)

    def _refuses(self, value: Any, part: Any) -> bool:
        try:
            return not self._validator.evolve(schema=part).is_valid(value)
        except Exception:  # as above, and where it takes too long
            return False


def _best(errors: list[ValidationError]) -> ValidationError | None:
    found: ValidationError | None = best_match(iter(errors))
    return found


def _spend() -> None:
    meter = _METER.get()
    meter.left -= 1
    if meter.left < 0 or thread_time() > meter.until:
        raise _TooLong


@lru_cache(maxsize=16)
def _metered(kind: Any) -> Any:
    own: dict[str, _Keyword | None] = {"uniqueItems": _unique_items}
    if "pattern" in kind.VALIDATORS:
        own |= {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
        }
    keywords = {name: _counted(own.get(name) or keyword) for name, keyword in kind.VALIDATORS.items()}
    untyped: Any = extend
    return untyped(kind, keywords | dict.fromkeys(_UNMETERED, _nothing))


def _counted(keyword: Any) -> _Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
        _spend()
        found: Iterator[ValidationError] | None = keyword(validator, value, instance, schema)
        return found

    return counted


def _nothing(validator: Any, value: Any, instance: Any, schema: Any) -> None:
    return None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Any:
    """The pattern, or None where RE2 can't do it: look-around, back references, or no pattern at all."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and isinstance(pattern, str):
        compiled = _compiled(pattern)
        if compiled is not None and compiled.search(_text(instance)) is None:
            yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping):
        return
    for pattern, subschema in patterns.items():
        _spend()
        compiled = _compiled(pattern)
        for name, value in instance.items() if compiled is not None else ():
            if compiled.search(_text(name)):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping):
        return
    properties = schema.get("properties", {})
    patterns = [_compiled(pattern) for pattern in schema.get("patternProperties", {})]
    if None in patterns:
        return
    extra = []
    for name in instance:
        if patterns:
            _spend()
        if name not in properties and not any(pattern.search(_text(name)) for pattern in patterns):
            extra.append(name)
    if isinstance(wanted, Mapping):
        for name in extra:
            yield from validator.descend(instance[name], wanted, path=name)
    elif wanted is False and extra:
        yield ValidationError("unknown: " + ", ".join(name[:_MAX_TEXT] for name in extra[:_MAX_NAMES]))


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """In linear time, which the library's is not for objects."""
    if wanted is True and isinstance(instance, list):
        seen = {json.dumps(_plain(each), sort_keys=True) for each in instance}
        if len(seen) < len(instance):
            yield ValidationError("has items that are alike")


def _plain(value: Any) -> Any:
    """JSON's 1 and 1.0 are one number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _text(text: str) -> str:
    """What RE2 can take: JSON may hold halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text
