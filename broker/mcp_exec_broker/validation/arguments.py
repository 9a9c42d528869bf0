"""Arguments of a call against the tool's schema, before they travel.

The schema comes from the server and is not trusted: references outside of it are never followed, patterns are
evaluated by RE2 in linear time, and a check ends after so many steps. What can't be judged within that travels as it
is, and the server judges it; a missing or unknown parameter is found all the same.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from jsonschema import ValidationError

from mcp_exec_broker.errors import ErrorReason, ToolCallError, build_rejection
from mcp_exec_broker.suggestions import close_names
from mcp_exec_broker.validation.parameters import ToolParameters, parse_parameters, read_properties
from mcp_exec_broker.validation.schema import BoundedValidator
from mcp_exec_tools.catalog import Tool

_MAX_STEPS: Final = 50_000
_MAX_NONES: Final = 1000
_MAX_TEXT: Final = 300
_MAX_NAMES: Final = 8


@dataclass(frozen=True, kw_only=True)
class _Known:
    shape: ToolParameters
    properties: Mapping[str, Any]
    """What the schema says of each parameter."""
    judge: BoundedValidator


class ArgumentValidator:
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

        It takes some 50 us for what tools really have, and a quarter of a second at worst. A schema that makes even
        small arguments take so long is not evaluated again.
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
        error = known.judge.error(arguments)
        if error is not None and put_back is not None and (whole := put_back(arguments)) != arguments:
            error = error if known.judge.error(whole) is not None else None
        if error is not None:
            raise _invalid(tool, shape, error)
        return arguments

    def _known(self, tool: Tool, catalog_hash: str) -> _Known:
        key = (catalog_hash, tool.name)
        found = self._kept.get(key)
        if found is None:
            judge = BoundedValidator(tool.input_schema, name=tool.name, max_steps=_MAX_STEPS)
            properties = read_properties(tool.input_schema)
            found = _Known(shape=parse_parameters(tool.input_schema), properties=properties, judge=judge)
            self._kept[key] = found
            while len(self._kept) > self._max_kept:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return found


def _unset(known: _Known, arguments: Mapping[str, Any]) -> set[str]:
    """The parameters that need not be given, are given as None, and whose schema takes no None."""
    needed = set(known.shape.required)
    nones = [
        name for name, value in arguments.items() if value is None and name in known.properties and name not in needed
    ]
    return known.judge.refusing(None, {name: known.properties[name] for name in nones[:_MAX_NONES]}) if nones else set()


def check_serializable(tool: str, arguments: Mapping[str, Any]) -> None:
    """Raises Failure (ToolError, InvalidArguments) where arguments can't be written as JSON that all can read.

    The SDK would fail in the middle of its work, and end the session with all calls that share it.
    """
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
        return
    except UnicodeEncodeError:
        why = "a text has half of a surrogate pair in it, which is no character"
    except ValueError:
        why = "a number is not finite, which JSON can't say"
    except RecursionError:
        why = "they are nested too deeply"
    raise build_rejection(ErrorReason.INVALID_ARGUMENTS, f"{tool}: the arguments are no JSON: {why}")


def _misnamed(tool: Tool, shape: ToolParameters, unknown: list[str], missing: list[str]) -> ToolCallError:
    parts = []
    if missing:
        parts.append("missing: " + ", ".join(missing[:_MAX_NAMES]))
    suggestions: list[str] = []
    for name in unknown[:_MAX_NAMES]:
        near = close_names(name, shape.parameters, limit=2)
        suggestions += near
        parts.append(f"unknown: {name[:_MAX_TEXT]}" + (f" (did you mean {' or '.join(near)}?)" if near else ""))
    message = f"{tool.name}: " + "; ".join(parts)
    return build_rejection(
        ErrorReason.INVALID_ARGUMENTS, message, parameters=shape.listed, suggestions=list(dict.fromkeys(suggestions))
    )


def _invalid(tool: Tool, shape: ToolParameters, error: ValidationError) -> ToolCallError:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    message = f"{tool.name}: {where[:_MAX_TEXT] or 'the arguments'}: {_bounded(error.message)}"
    suggestions: list[str] = []
    if error.validator == "enum" and isinstance(error.instance, str) and isinstance(error.validator_value, list):
        suggestions = close_names(error.instance, [each for each in error.validator_value if isinstance(each, str)])
    elif error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = error.schema.get("properties") if isinstance(error.schema, Mapping) else None
        if isinstance(known, Mapping):
            for name in islice((each for each in error.instance if each not in known), _MAX_NAMES):
                suggestions += close_names(name, known, limit=2)
    return build_rejection(ErrorReason.INVALID_ARGUMENTS, message, parameters=shape.listed, suggestions=suggestions)


def _bounded(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT // 2] + " … " + text[-_MAX_TEXT // 2 :]
