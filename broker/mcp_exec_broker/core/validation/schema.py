"""Bounded evaluation of the JSON Schemas of servers, which are untrusted.

References out of a schema are never followed, RE2 evaluates patterns in linear time, and a check ends after a number of
steps and an amount of CPU time: the steps bound long checks, the time bounds checks with long steps.
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

from mcp_exec_tools.schemas.reading import is_nullable

log = logging.getLogger(__name__)

_MAX_SECONDS: Final = 0.25
"""CPU time of one check."""
_SMALL: Final = 16 * 1024
"""Characters of a value that every honest schema checks quickly."""
_MAX_ERRORS: Final = 20
_MAX_TEXT: Final = 300
_MAX_NAMES: Final = 8
_SKIPPED_KEYWORDS: Final = ("unevaluatedProperties", "unevaluatedItems")
"""Keywords whose evaluation walks the schema without counted steps. The server checks them."""


class _TooLong(Exception):
    """The check exceeded its steps or its time."""


@dataclass(kw_only=True)
class _Meter:
    left: int
    until: float
    """On the clock of the thread's CPU time."""


_METER: Final[ContextVar[_Meter]] = ContextVar("schema_meter")

_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class BoundedValidator:
    """Validator of one schema. A schema that takes too long even for a small value is never evaluated again."""

    def __init__(self, schema: Mapping[str, Any], *, name: str, max_steps: int) -> None:
        self._name = name
        """Name of the tool, for the log."""
        self._max_steps = max_steps
        self._validator: Any = None
        try:
            kind = validator_for(schema, default=Draft202012Validator)
            self._validator = _add_metering(kind)(schema, registry=Registry())  # the registry cannot retrieve anything
        except Exception as error:  # an invalid $schema or $id fails in any way
            log.info("cannot evaluate the schema of %s: %s", name, type(error).__name__)

    def find_error(self, value: Any) -> ValidationError | None:
        """Return the most relevant error of a value, or None if it has none or the check exceeds its bounds."""
        if self._validator is None:
            return None
        errors: list[ValidationError] = []
        mark = _METER.set(_Meter(left=self._max_steps, until=thread_time() + _MAX_SECONDS))
        try:
            # one by one: errors found count even if the rest takes too long
            for error in islice(self._validator.iter_errors(value), _MAX_ERRORS):
                errors.append(error)  # noqa: PERF402
            return _choose_best(errors)
        except _TooLong:
            log.info("the check of a value by the schema of %s takes too long", self._name)
            if not errors and len(json.dumps(value)) <= _SMALL:
                self._validator = None
            return errors[0] if errors else None
        except Exception as error:  # a loop, a foreign reference or an invalid schema fails in any way
            log.info("cannot evaluate the schema of %s: %s", self._name, type(error).__name__)
            return None
        finally:
            _METER.reset(mark)

    def find_rejecting(self, value: Any, parts: Mapping[str, Any]) -> set[str]:
        """Return the names of the subschemas that reject a value; none if the check exceeds its bounds."""
        if self._validator is None:
            return set()
        mark = _METER.set(_Meter(left=self._max_steps, until=thread_time() + _MAX_SECONDS))
        try:
            return {name for name, part in parts.items() if self._rejects(value, part)}
        finally:
            _METER.reset(mark)

    def _rejects(self, value: Any, part: Any) -> bool:
        try:
            return not self._validator.evolve(schema=part).is_valid(value)
        except Exception:  # as above, or it takes too long
            return False


def _choose_best(errors: list[ValidationError]) -> ValidationError | None:
    best: ValidationError | None = best_match(iter(errors))
    return best


def _count_step() -> None:
    meter = _METER.get()
    meter.left -= 1
    if meter.left < 0 or thread_time() > meter.until:
        raise _TooLong


@lru_cache(maxsize=16)
def _add_metering(kind: Any) -> Any:
    own: dict[str, _Keyword | None] = {"uniqueItems": _check_unique_items}
    if "pattern" in kind.VALIDATORS:
        own |= {
            "pattern": _check_pattern,
            "patternProperties": _check_pattern_properties,
            "additionalProperties": _check_additional_properties,
        }
    keywords = {name: _count_keyword(own.get(name) or keyword) for name, keyword in kind.VALIDATORS.items()}
    untyped: Any = extend
    return untyped(kind, keywords | dict.fromkeys(_SKIPPED_KEYWORDS, _skip_keyword))


def _count_keyword(keyword: Any) -> _Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
        _count_step()
        if instance is None and is_nullable(schema):
            return None
        errors: Iterator[ValidationError] | None = keyword(validator, value, instance, schema)
        return errors

    return counted


def _skip_keyword(validator: Any, value: Any, instance: Any, schema: Any) -> None:
    return None


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> Any:
    """Return the compiled pattern, or None if RE2 rejects it: look-around, back references, invalid patterns."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


def _check_pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and isinstance(pattern, str):
        compiled = _compile(pattern)
        if compiled is not None and compiled.search(_make_searchable(instance)) is None:
            yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _check_pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping):
        return
    for pattern, subschema in patterns.items():
        _count_step()
        compiled = _compile(pattern)
        for name, value in instance.items() if compiled is not None else ():
            if compiled.search(_make_searchable(name)):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _check_additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping):
        return
    properties = schema.get("properties", {})
    patterns = [_compile(pattern) for pattern in schema.get("patternProperties", {})]
    if None in patterns:
        return
    extra = []
    for name in instance:
        if patterns:
            _count_step()
        if name not in properties and not any(pattern.search(_make_searchable(name)) for pattern in patterns):
            extra.append(name)
    if isinstance(wanted, Mapping):
        for name in extra:
            yield from validator.descend(instance[name], wanted, path=name)
    elif wanted is False and extra:
        yield ValidationError("unknown: " + ", ".join(name[:_MAX_TEXT] for name in extra[:_MAX_NAMES]))


def _check_unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check in linear time; the library takes quadratic time for objects."""
    if wanted is True and isinstance(instance, list):
        seen = {json.dumps(_normalize(item), sort_keys=True) for item in instance}
        if len(seen) < len(instance):
            yield ValidationError("has equal items")


def _normalize(value: Any) -> Any:
    """Make equal JSON values equal in Python's JSON text, such as 1 and 1.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normalize(item) for item in value]
    if isinstance(value, dict):
        return {name: _normalize(item) for name, item in value.items()}
    return value


def _make_searchable(text: str) -> str:
    """Replace lone surrogates, which JSON allows and RE2 rejects."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def format_path(error: ValidationError) -> str:
    """Return the place of an error in its value, such as `rows[3].name`, empty for the value itself."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return path.lstrip(".")[:_MAX_TEXT]
