"""Arguments of a tool call: merged from the forms that code writes them in, and encoded as JSON."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_sandbox.values.arguments import encode_as_json
from mcp_exec_sandbox.values.changes import ValueRefused

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


def find_similar(wanted: str, known: Iterable[str]) -> list[str]:
    """Return up to three of `known` that look like `wanted`."""
    # Imported after a mistake, not in every idle sandbox.
    import difflib

    folded = {name.replace("_", "").replace("-", "").lower(): name for name in known}
    close = difflib.get_close_matches(wanted.replace("_", "").replace("-", "").lower(), folded, n=3, cutoff=0.6)
    return [folded[name] for name in close]


def _match_other_spelling(spelling: object, parameters: Mapping[str, bool], spellings: Mapping[str, str]) -> str | None:
    """Return the parameter that this is another spelling of, such as `projectID` for `project_id`, `μm` for `µm`."""
    # Imported for an unknown name, not in every idle sandbox.
    from mcp_exec_tools.names import normalize, snake_case

    if not isinstance(spelling, str) or len(spelling) > MAX_NAME:
        return None
    for name in (normalize(spelling), snake_case(spelling)):
        if name in parameters or name in spellings:
            return name if name in parameters else spellings[name]
    return None


def _build_unknown_error(
    tool: str, name: str, parameters: Mapping[str, bool], spellings: Mapping[str, str]
) -> ToolError:
    close = find_similar(name, [*parameters, *spellings])
    suggestions = dict.fromkeys(name if name in parameters else spellings[name] for name in close)
    return _build_error(tool, f"there is no parameter {name[:100]}", parameters, suggestions=list(suggestions))


def _build_error(
    tool: str, message: str, parameters: Mapping[str, bool], *, suggestions: Iterable[str] = ()
) -> ToolError:
    listed = [name + ("*" if required else "") for name, required in parameters.items()]
    return ToolError(message, tool=tool, reason="InvalidArguments", parameters=listed, suggestions=list(suggestions))
