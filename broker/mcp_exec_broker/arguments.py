"""Arguments of a call against the tool's schema, before they travel.

The schema comes from the server and is not trusted: references outside of it are never followed, patterns are
evaluated by RE2 in linear time, and a check ends after so many steps. What can't be judged within that travels as it
is, and the server judges it; a missing or unknown parameter is found all the same.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import re2
from jsonschema import ValidationError
from jsonschema.exceptions import best_match
from jsonschema.validators import Draft202012Validator, extend, validator_for
from referencing import Registry

from mcp_exec_api.tools.catalog import Tool
from mcp_exec_broker.failures import Failure, Reason, wrong
from mcp_exec_broker.shapes import Shape, properties_of, shape_of
from mcp_exec_broker.suggestions import close_names

log = logging.getLogger(__name__)

_MAX_STEPS: Final = 50_000
_MAX_NONES: Final = 1000
_SMALL: Final = 16 * 1024
"""Characters of arguments whose check no honest schema makes long."""
_MAX_ERRORS: Final = 20
_MAX_TEXT: Final = 300
_MAX_DEPTH: Final = 8
_UNMETERED: Final = ("unevaluatedProperties", "unevaluatedItems")
"""Keywords whose evaluation walks the schema by itself, uncounted: they are left to the server."""


class _TooLong(Exception):
    """The check took more steps than it may."""


@dataclass(kw_only=True)
class _Meter:
    left: int


_METER: Final[ContextVar[_Meter]] = ContextVar("arguments_meter")

_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


@dataclass(frozen=True, kw_only=True)
class _Known:
    shape: Shape
    properties: Mapping[str, Any]
    """What the schema says of each parameter."""
    validator: Any
    """None where the schema is none."""


class Arguments:
    """Checks arguments. Validators are kept, by catalog."""

    def __init__(self, *, max_kept: int = 4096) -> None:
        self._max_kept = max_kept
        self._kept: OrderedDict[tuple[str, str], _Known] = OrderedDict()

    def check(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        *,
        catalog_hash: str,
        put_back: Callable[[Any], Any] | None = None,
    ) -> dict[str, Any]:
        """The arguments as they are to travel.

        None for what need not be given is left out, unless the schema takes it; what the schema wants and has a
        default for is filled in.

        Raises Failure (ToolError, InvalidArguments) with the parameters and what was probably meant.

        `put_back` puts values in the place of their tokens, where that is done before the call travels: arguments are
        good if they are so then, and what is said of bad ones is said of the tokens alone.

        It takes some 50 us for what tools really have. Its steps are bounded, which comes to a tenth of a second at
        worst. A schema that makes even small arguments take so long is not evaluated again.
        """
        known = self._known(tool, catalog_hash)
        shape = known.shape
        unset = _unset(known, arguments)
        arguments = {name: value for name, value in arguments.items() if name not in unset}
        arguments |= {name: value for name, value in shape.defaults.items() if name not in arguments}
        unknown = [name for name in arguments if name not in shape.parameters] if shape.closed else []
        missing = [name for name in shape.required if name not in arguments]
        if unknown or missing:
            raise _misnamed(tool, shape, unknown, missing)
        error = self._error(known, tool, arguments, catalog_hash)
        if error is not None and put_back is not None and (whole := put_back(arguments)) != arguments:
            error = error if self._error(known, tool, whole, catalog_hash) is not None else None
        if error is not None:
            raise _invalid(tool, shape, error)
        return arguments

    def _error(
        self, known: _Known, tool: Tool, arguments: Mapping[str, Any], catalog_hash: str
    ) -> ValidationError | None:
        if known.validator is None:
            return None
        try:
            return _first_error(known.validator, arguments, tool)
        except _TooLong:
            log.info("arguments of %s take too long to judge by its schema", tool.name)
            if len(json.dumps(arguments)) <= _SMALL:
                self._kept[(catalog_hash, tool.name)] = replace(known, validator=None)
            return None

    def _known(self, tool: Tool, catalog_hash: str) -> _Known:
        key = (catalog_hash, tool.name)
        found = self._kept.get(key)
        if found is None:
            found = _Known(
                shape=shape_of(tool.input_schema),
                properties=properties_of(tool.input_schema),
                validator=_validator(tool.input_schema),
            )
            self._kept[key] = found
            while len(self._kept) > self._max_kept:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return found


def _misnamed(tool: Tool, shape: Shape, unknown: list[str], missing: list[str]) -> Failure:
    parts = []
    if missing:
        parts.append("missing: " + ", ".join(missing[:_MAX_DEPTH]))
    suggestions: list[str] = []
    for name in unknown[:_MAX_DEPTH]:
        near = close_names(name, shape.parameters, limit=2)
        suggestions += near
        parts.append(f"unknown: {name[:_MAX_TEXT]}" + (f" (did you mean {' or '.join(near)}?)" if near else ""))
    message = f"{tool.name}: " + "; ".join(parts)
    return wrong(
        Reason.INVALID_ARGUMENTS, message, parameters=shape.listed, suggestions=list(dict.fromkeys(suggestions))
    )


def _invalid(tool: Tool, shape: Shape, error: ValidationError) -> Failure:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    message = f"{tool.name}: {where[:_MAX_TEXT] or 'the arguments'}: {_bounded(error.message)}"
    suggestions: list[str] = []
    if error.validator == "enum" and isinstance(error.instance, str) and isinstance(error.validator_value, list):
        suggestions = close_names(error.instance, [each for each in error.validator_value if isinstance(each, str)])
    elif error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = error.schema.get("properties") if isinstance(error.schema, Mapping) else None
        if isinstance(known, Mapping):
            for name in islice((each for each in error.instance if each not in known), _MAX_DEPTH):
                suggestions += close_names(name, known, limit=2)
    return wrong(Reason.INVALID_ARGUMENTS, message, parameters=shape.listed, suggestions=suggestions)


def _bounded(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT // 2] + " … " + text[-_MAX_TEXT // 2 :]


def _validator(schema: Mapping[str, Any]) -> Any:
    kind = validator_for(schema, default=Draft202012Validator)
    return _metered(kind)(schema, registry=Registry())  # with no way to retrieve anything


def _first_error(validator: Any, arguments: Mapping[str, Any], tool: Tool) -> ValidationError | None:
    mark = _METER.set(_Meter(left=_MAX_STEPS))
    try:
        found: ValidationError | None = best_match(islice(validator.iter_errors(dict(arguments)), _MAX_ERRORS))
        return found
    except _TooLong:
        raise
    except Exception as error:  # one that loops, points elsewhere or is no schema fails in any way
        log.info("the schema of %s can't be evaluated: %s", tool.name, type(error).__name__)
    finally:
        _METER.reset(mark)
    return None


def _unset(known: _Known, arguments: Mapping[str, Any]) -> set[str]:
    """The parameters that need not be given, are given as None, and whose schema takes no None."""
    needed = set(known.shape.required)
    nones = [
        name for name, value in arguments.items() if value is None and name in known.properties and name not in needed
    ]
    if not nones or known.validator is None:
        return set()
    mark = _METER.set(_Meter(left=_MAX_STEPS))
    try:
        return {name for name in nones[:_MAX_NONES] if _refuses_none(known.validator, known.properties[name])}
    finally:
        _METER.reset(mark)


def _refuses_none(validator: Any, schema: Any) -> bool:
    try:
        return not validator.evolve(schema=schema).is_valid(None)
    except Exception:  # as above, and where it takes too long
        return False


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
        meter = _METER.get()
        meter.left -= 1
        if meter.left < 0:
            raise _TooLong
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
    extra = [
        name
        for name in instance
        if name not in properties and not any(pattern.search(_text(name)) for pattern in patterns)
    ]
    if isinstance(wanted, Mapping):
        for name in extra:
            yield from validator.descend(instance[name], wanted, path=name)
    elif wanted is False and extra:
        yield ValidationError("unknown: " + ", ".join(name[:_MAX_TEXT] for name in extra[:_MAX_DEPTH]))


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
