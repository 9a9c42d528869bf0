"""Arguments of a tool call: merged from the forms that code writes them in, and encoded as JSON. Nothing is changed."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_sandbox.values import changes
from mcp_exec_sandbox.values.changes import UNKNOWN, ValueChange, ValueRefused
from mcp_exec_sandbox.values.forms import find_form, is_decimal, read_special
from mcp_exec_sandbox.values.walk import Walk
from mcp_exec_tools.names import find_close_names, normalize, snake_case
from mcp_exec_tools.text import format_path

_MAX_INTEGER_BITS = 14_000
"""Size of an integer whose digits every Python reads: 4300 of them."""
_KEYS = (str, int, float, type(None))


def encode_as_json(arguments: Mapping[str, Any], limit: int) -> str | None:
    """Encode arguments as a JSON object, or return None if it has more than `limit` bytes.

    Raises:
        ValueRefused: a value has no JSON that means the same. The text has its path and what to pass instead.
    """
    text = _encode_plain(arguments)
    if text is None:
        walk = _ArgumentWalk(limit)
        plain = walk.convert(arguments)
        if walk.full:
            return None
        text = _encode(plain)
    # A character has up to four bytes, so only texts near the limit are encoded to count.
    return text if 4 * len(text) <= limit or len(text.encode()) <= limit else None


def _encode(plain: Any) -> str:
    return json.dumps(plain, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _encode_plain(arguments: Mapping[str, Any]) -> str | None:
    """Return the JSON of plain arguments, as most are, or None if they need the walk. It takes a tenth of the time."""
    try:
        text = _encode(arguments)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return text if _is_plain(arguments) else None


def _is_plain(value: object) -> bool:
    """Return whether all keys are texts, and no named tuple is there. The value has JSON, so it contains no cycle."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                return False
            waiting += item.values()
        elif type(item) is list or type(item) is tuple:
            waiting += item
        elif isinstance(item, (list, tuple)):
            return False
    return True


class _ArgumentWalk(Walk):
    """A conversion that refuses what it would have to change."""

    max_items = 100_000

    def report(self, change: ValueChange, what: str = "") -> None:
        if change.refusal:
            place = format_path(self._path) or "the arguments"
            raise ValueRefused(f"{place} {change.refusal.replace('{what}', what)}")

    def _find_form(self, value: Any) -> Any:
        return self._find_number(value) if is_decimal(value) else super()._find_form(value)

    def _find_number(self, value: Any) -> int | float:
        """Return the number of a decimal, which parameters that are amounts need."""
        if not value.is_finite():
            return read_special(value)
        number = int(value) if value == value.to_integral_value() else float(value)
        if number != value:
            self.report(changes.INEXACT_DECIMAL)
        return number

    def _long_integer(self, value: int) -> Any:
        if value.bit_length() > _MAX_INTEGER_BITS:
            self.report(changes.HUGE_INTEGER, str(value.bit_length()))
        return self._pay(value, value.bit_length() // 4)

    def _convert_key(self, key: object) -> str:
        form = key if isinstance(key, _KEYS) else find_form(key, self._left)
        if form is UNKNOWN or not isinstance(form, _KEYS):
            self.report(changes.NO_TEXT_KEY, type(key).__name__)
        return super()._convert_key(key)


MAX_ARGUMENT_BYTES = 8 * 1024 * 1024
"""Maximum size of the arguments of one call."""
MAX_NAME = 200
"""Longest name that is looked up in other spellings."""


def merge_arguments(
    tool: str,
    values: Sequence[Any],
    named: Mapping[str, Any],
    parameters: Mapping[str, bool],
    spellings: Mapping[str, str],
    *,
    is_open: bool = False,
) -> dict[str, Any]:
    """Return arguments by their original names, from values in the parameters' order, a dict, keywords, or several.

    A single value that is a dict, a dataclass, a pydantic model or None has the arguments by name. Any other values are
    arguments themselves. With `is_open`, the tool accepts parameters that are not listed.

    Raises:
        ToolError: (reason InvalidArguments) an argument is unknown, given twice or missing.
    """
    mapping = to_mapping(values[0]) if len(values) == 1 else None
    positional = bind_values(tool, values, parameters) if mapping is None else mapping
    merged: dict[str, Any] = {}
    for source in (positional, named):
        for spelling, value in source.items():
            name = spelling if spelling in parameters else spellings.get(spelling)
            if name is None:
                name = _match_other_spelling(spelling, parameters, spellings)
            if name is None and is_open:
                name = spelling
            if name is None:
                raise _build_unknown_error(tool, str(spelling), parameters, spellings)
            if name in merged:
                raise _build_error(tool, f"the parameter {name} is given twice", parameters)
            merged[name] = value
    if missing := [name for name, required in parameters.items() if required and name not in merged]:
        message = f"missing parameter{'s' if len(missing) > 1 else ''}: {', '.join(missing)}"
        if mapping is None and positional:
            message += f" (positional arguments were taken as {', '.join(positional)})"
        raise _build_error(tool, message, parameters)
    return merged


def bind_values(tool: str, values: Sequence[Any], parameters: Iterable[str]) -> dict[str, Any]:
    """Return positional arguments by name, in the parameters' order.

    Raises:
        ToolError: (reason InvalidArguments) there are more values than parameters.
    """
    names = list(parameters)
    if len(values) > len(names):
        most = f"at most {len(names)}, in this order: {', '.join(names)}" if names else "no arguments"
        message = f"{len(values)} positional argument{'s were' if len(values) > 1 else ' was'} given, it takes {most}"
        raise _build_error(tool, message, dict.fromkeys(names, False))
    return dict(zip(names, values, strict=False))


def to_mapping(input: object) -> Mapping[str, Any] | None:
    """Return arguments by name from a dict, a dataclass, a pydantic model or None. Other values have none."""
    if input is None:
        return {}
    if isinstance(input, Mapping):
        return input
    if isinstance(input, type):
        return None
    if dataclasses.is_dataclass(input):
        return {field.name: getattr(input, field.name) for field in dataclasses.fields(input)}
    if callable(dump := getattr(input, "model_dump", None)):
        dumped: Mapping[str, Any] = dump()
        return dumped
    return None


def encode_arguments(tool: str, arguments: Mapping[str, Any]) -> str:
    """Encode the arguments as a JSON object, with dates, tables, sets and so on in the forms that results have.

    Raises:
        ToolError: (reason InvalidArguments) a value has no JSON that means the same, or the arguments are too large.
    """
    try:
        text = encode_as_json(arguments, MAX_ARGUMENT_BYTES)
    except ValueRefused as error:
        raise _build_error(tool, str(error), {}) from None
    if text is None:
        raise _build_error(tool, f"the arguments have more than {MAX_ARGUMENT_BYTES // 1024 // 1024} MiB", {})
    return text


def _match_other_spelling(spelling: object, parameters: Mapping[str, bool], spellings: Mapping[str, str]) -> str | None:
    """Return the parameter that this is another spelling of, such as `projectID` for `project_id`, `μm` for `µm`."""
    if not isinstance(spelling, str) or len(spelling) > MAX_NAME:
        return None
    for name in (normalize(spelling), snake_case(spelling)):
        if name in parameters or name in spellings:
            return name if name in parameters else spellings[name]
    return None


def _build_unknown_error(
    tool: str, name: str, parameters: Mapping[str, bool], spellings: Mapping[str, str]
) -> ToolError:
    close = find_close_names(name, [*parameters, *spellings])
    suggestions = dict.fromkeys(name if name in parameters else spellings[name] for name in close)
    return _build_error(tool, f"there is no parameter {name[:100]}", parameters, suggestions=list(suggestions))


def _build_error(
    tool: str, message: str, parameters: Mapping[str, bool], *, suggestions: Iterable[str] = ()
) -> ToolError:
    listed = [name + ("*" if required else "") for name, required in parameters.items()]
    return ToolError(message, tool=tool, reason="InvalidArguments", parameters=listed, suggestions=list(suggestions))
