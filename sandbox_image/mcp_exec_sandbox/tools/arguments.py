"""The arguments of a tool call, as code writes them and as they travel."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from mcp_exec_sandbox.tools.errors import ToolError

MAX_ARGUMENT_BYTES = 8 * 1024 * 1024
"""The most that one call may send."""


def merge(
    tool: str,
    given: object,
    named: Mapping[str, Any],
    parameters: Mapping[str, bool],
    spellings: Mapping[str, str],
) -> dict[str, Any]:
    """Arguments by their original names, from a dict, keywords or both.

    Raises ToolError (reason InvalidArguments) where one is unknown, given twice or missing.
    """
    merged: dict[str, Any] = {}
    for source in (as_mapping(tool, given), named):
        for spelling, value in source.items():
            name = (
                spelling if spelling in parameters else spellings.get(spelling) or _own(spelling, parameters, spellings)
            )
            if name is None:
                raise _unknown(tool, str(spelling), parameters, spellings)
            if name in merged:
                raise _invalid(tool, f"the parameter {name} is given twice", parameters)
            merged[name] = value
    missing = [name for name, required in parameters.items() if required and name not in merged]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        raise _invalid(tool, f"missing parameter{plural}: {', '.join(missing)}", parameters)
    return merged


def as_mapping(tool: str, given: object) -> Mapping[str, Any]:
    """The positional input as a mapping: a dict, a dataclass, a pydantic model, or nothing."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return given
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    if callable(dump := getattr(given, "model_dump", None)):
        dumped: Mapping[str, Any] = dump()
        return dumped
    raise _invalid(tool, f"arguments are a dict or keywords, not {type(given).__name__} {str(given)[:100]!r}", {})


def encode_arguments(tool: str, arguments: Mapping[str, Any]) -> str:
    """The arguments as a JSON object; dates, decimals, paths, sets and dataclasses have their usual form.

    Raises ToolError (reason InvalidArguments) where something has none, or where there is too much.
    """
    try:
        text = json.dumps(arguments, default=_plain, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(tool, f"the arguments are no JSON: {error}", {}) from None
    # A character may take four bytes: the exact count matters only near the bound.
    if 4 * len(text) > MAX_ARGUMENT_BYTES and len(text.encode("utf-8", "replace")) > MAX_ARGUMENT_BYTES:
        raise _invalid(tool, f"the arguments have more than {MAX_ARGUMENT_BYTES // 1024 // 1024} MiB", {})
    return text


def alike(wanted: str, known: Iterable[str]) -> list[str]:
    """Up to three of `known` that look like `wanted`."""
    # Loaded where a mistake was made, not in every idle sandbox.
    import difflib

    folded = {name.replace("_", "").replace("-", "").lower(): name for name in known}
    close = difflib.get_close_matches(wanted.replace("_", "").replace("-", "").lower(), folded, n=3, cutoff=0.6)
    return [folded[each] for each in close]


def _own(spelling: object, parameters: Mapping[str, bool], spellings: Mapping[str, str]) -> str | None:
    """The parameter whose name is this one but for capitals, such as `projectID` for `project_id`."""
    # Loaded where a name is odd, not in every idle sandbox.
    from mcp_exec_tools.names import snake_case

    name = snake_case(spelling) if isinstance(spelling, str) else ""
    return name if name in parameters else spellings.get(name)


def _plain(value: Any) -> Any:
    """What `json` can't write by itself, in types that it can."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (PurePath, UUID)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    for method in ("model_dump", "tolist"):  # pydantic, numpy
        if callable(convert := getattr(value, method, None)):
            return convert()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _unknown(tool: str, name: str, parameters: Mapping[str, bool], spellings: Mapping[str, str]) -> ToolError:
    close = alike(name, [*parameters, *spellings])
    meant = dict.fromkeys(each if each in parameters else spellings[each] for each in close)
    return _invalid(tool, f"there is no parameter {name[:100]}", parameters, suggestions=list(meant))


def _invalid(tool: str, message: str, parameters: Mapping[str, bool], *, suggestions: Iterable[str] = ()) -> ToolError:
    listed = [name + ("*" if required else "") for name, required in parameters.items()]
    return ToolError(message, tool=tool, reason="InvalidArguments", parameters=listed, suggestions=list(suggestions))
