"""Arguments of tools as models write them: read in the type of the tool's schema if they can mean one thing only."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_types import Tool

from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.http.request_body import parse_json

_INTEGER: Final = re.compile(r"\s*([+-]?[0-9]{1,15})(?:\.0{1,15})?\s*")
_BOOLEANS: Final = {"true": True, "false": False}
_ITEM: Final = re.compile(r"\s*([^\s,\[\]{}\"']+)\s*")
_MAX_ITEMS: Final = 1000
_ALIASES: Final[Mapping[str, Mapping[str, str]]] = {
    "describe_tools": {"tools": "names", "tool": "names", "name": "names"},
    "write_file": {"text": "content"},
}
"""Names that models give to arguments, by the names that the tool has."""


def read_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in the types of the tool's schema, without those that are left out."""
    schema: Mapping[str, Any] = tool.input_schema
    properties, required = schema["properties"], schema["required"]
    read: dict[str, Any] = {}
    aliases = _ALIASES.get(tool.name, {})
    for given, value in arguments.items():
        name = aliases.get(given, given)
        if name != given and (name in arguments or name in read):
            name = given  # which the tool refuses
        if name in properties and name not in required and (value is None or value == ""):
            continue
        if name not in required and _is_null(value) and properties.get(name, {}).get("type") in _READERS:
            continue
        reader = _READERS.get(properties[name].get("type", "")) if name in properties else None
        read[name] = value if reader is None else reader(value)
    return read


def _is_null(value: Any) -> bool:
    """Return whether a text says that there is no value, where a text can mean nothing else."""
    return isinstance(value, str) and value.strip().lower() in ("null", "none")


def _read_integer(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    match = _INTEGER.fullmatch(value) if isinstance(value, str) else None
    return int(match[1]) if match else value


def _read_boolean(value: Any) -> Any:
    return _BOOLEANS.get(value.strip().lower(), value) if isinstance(value, str) else value


def _read_object(value: Any) -> Any:
    parsed = _parse(value, "{") if isinstance(value, str) else None
    return parsed if isinstance(parsed, dict) else value


def _read_array(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        parsed = _parse(value, "[")
        return parsed if isinstance(parsed, list) else value
    items = value.split(",", _MAX_ITEMS)
    matches = [_ITEM.fullmatch(item) for item in items]
    return [match[1] for match in matches if match] if all(matches) else value


def _parse(text: str, opening: str) -> Any:
    """Return the value of a JSON text that begins so, or None if it is not valid."""
    if not text.lstrip().startswith(opening):
        return None
    try:
        return parse_json(text.encode())
    except (HttpProblem, UnicodeEncodeError, json.JSONDecodeError):
        return None


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "integer": _read_integer,
    "boolean": _read_boolean,
    "object": _read_object,
    "array": _read_array,
}
