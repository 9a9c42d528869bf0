"""Overlays: what users know servers by, added to what the servers have.

An overlay is a folder with an `overlay.json`:

    {"needs": ["execute_sql"],
     "aliases": {"run_sql": "execute_sql"},
     "calls": {"create_issue": {"tool": "issue_write", "arguments": {"method": "create"}, "summary": "...",
         "parameters": ["owner", "repo", "title"], "required": ["owner", "repo", "title"]}},
     "functions": {"compare_libraries": {"needs": ["query-docs"], "summary": "...", "input_schema": {...}}},
     "spellings": {"search_code": {"q": "query"}},
     "results": {"execute_sql": {"format": "untrusted_data", "output_schema": {"type": "array"}}}}

An alias is another name of a tool. A call is a tool with fixed arguments. A function is Python source in
`<function>.py.in`. `spellings` are other names of a tool's parameters. `results` names the format of a tool whose
results wrap a value in text, and the schema of the value.

An overlay names no server. It adds to every server that has the tools that it needs, and a tool or parameter that
already has such a name keeps it.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from mcp_exec_tools.catalog import Catalog, Tool

_SHIPPED: Final = Path(__file__).parent
_ENDINGS: Final = {"python": ".py.in", "typescript": ".js.in"}
"""Endings of the sources of functions, by language."""
_HEAD: Final = 2000
"""The boundary's name must occur within so many characters."""
_BOUNDARY: Final = re.compile(r"<(untrusted-data-[0-9A-Za-z-]{1,64})>")


@dataclass(frozen=True, kw_only=True)
class ComposedFunction:
    """Function composed of tools."""

    needs: tuple[str, ...]
    """Names of the tools that it calls."""
    summary: str
    input_schema: Mapping[str, Any]
    """JSON Schema of its keyword arguments."""
    sources: Mapping[str, str]
    """Its source by language. A language without one does not have the function."""


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """Function that calls one tool with fixed arguments."""

    tool: str
    arguments: Mapping[str, str]
    """The fixed arguments. A server whose tool does not accept them does not get the function."""
    summary: str
    parameters: tuple[str, ...]
    """The other parameters in their positional order. Those that the tool does not have are left out."""
    required: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ResultOverlay:
    """Reading rules for the results of a tool."""

    format: str
    """A key of `FORMATS`."""
    output_schema: Mapping[str, Any]
    """JSON Schema of the value that code gets."""


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """Names that are added to each server with the needed tools."""

    needs: tuple[str, ...] = ()
    """Names of tools. The overlay applies to a server only if it has all of them."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The tool's name by alias."""
    calls: Mapping[str, ToolCall] = field(default_factory=dict)
    functions: Mapping[str, ComposedFunction] = field(default_factory=dict)
    spellings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The parameter's name by its other name, by the name of the tool."""
    results: Mapping[str, ResultOverlay] = field(default_factory=dict)
    """By the name of the tool."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read an overlay from its folder.

        Raises ValueError if the overlay is invalid, and OSError if a file is missing.
        """
        data = json.loads((folder / "overlay.json").read_text(encoding="utf-8"))
        _check_keys(data, {"needs", "aliases", "calls", "functions", "spellings", "results"}, folder)
        names = [name for key in ("aliases", "calls", "functions") for name in data.get(key, {})]
        if invalid_names := [name for name in names if not (name.isidentifier() and name.isascii())]:
            raise ValueError(f"{folder}: {invalid_names[0]!r} is not a valid function name")
        if invalid_aliases := [name for name, tool in data.get("aliases", {}).items() if not isinstance(tool, str)]:
            raise ValueError(f"{folder}: the alias {invalid_aliases[0]!r} must map to the name of a tool")
        return cls(
            needs=tuple(data.get("needs", ())),
            aliases=data.get("aliases", {}),
            calls={name: _load_call(entry, folder) for name, entry in data.get("calls", {}).items()},
            functions={name: _load_function(name, entry, folder) for name, entry in data.get("functions", {}).items()},
            spellings=data.get("spellings", {}),
            results={name: _load_result(name, entry, folder) for name, entry in data.get("results", {}).items()},
        )


@dataclass(frozen=True, kw_only=True)
class AddedFunction:
    """Another name of a tool, or a tool with fixed arguments."""

    tool: Tool
    """The tool, described as this function: with its name, its description and the parameters that are not fixed."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """The fixed arguments."""


@dataclass(frozen=True, kw_only=True)
class Additions:
    """Names that overlays add to one server."""

    catalog: Catalog
    """The server's tools, with the schemas of the values that code gets."""
    functions: Mapping[str, AddedFunction]
    """By name."""
    composed: Mapping[str, ComposedFunction]
    """By name."""
    spellings: Mapping[str, Mapping[str, str]]
    """The parameter's name by its other name, by the name of the tool."""
    result_formats: Mapping[str, str]
    """By the name of the tool."""


@cache
def load_shipped() -> Mapping[str, Overlay]:
    """Return the overlays in this package, by name."""
    return {path.parent.name: Overlay.load(path.parent) for path in sorted(_SHIPPED.glob("*/overlay.json"))}


def _load_call(entry: Mapping[str, Any], folder: Path) -> ToolCall:
    _check_keys(entry, {"tool", "arguments", "summary", "parameters", "required"}, folder)
    return ToolCall(
        tool=entry["tool"],
        arguments=entry.get("arguments", {}),
        summary=entry["summary"],
        parameters=tuple(entry["parameters"]),
        required=tuple(entry["required"]),
    )


def _load_function(name: str, entry: Mapping[str, Any], folder: Path) -> ComposedFunction:
    _check_keys(entry, {"needs", "summary", "input_schema"}, folder)
    sources = {
        language: path.read_text(encoding="utf-8")
        for language, ending in _ENDINGS.items()
        if (path := folder / f"{name}{ending}").exists()
    }
    if not sources:
        raise ValueError(f"{folder}: the function {name!r} has no source: add {' or '.join(_ENDINGS.values())}")
    if "python" in sources:
        compile(sources["python"], f"{name}.py.in", "exec")
    return ComposedFunction(
        needs=tuple(entry["needs"]), summary=entry["summary"], input_schema=entry["input_schema"], sources=sources
    )


def _load_result(name: str, entry: Mapping[str, Any], folder: Path) -> ResultOverlay:
    _check_keys(entry, {"format", "output_schema"}, folder)
    if entry["format"] not in FORMATS:
        raise ValueError(f"{folder}: {name} has the unknown format {entry['format']!r}; known are {', '.join(FORMATS)}")
    return ResultOverlay(format=entry["format"], output_schema=entry["output_schema"])


def _check_keys(entry: Mapping[str, Any], known: set[str], folder: Path) -> None:
    if unknown := set(entry) - known:
        raise ValueError(f"{folder}: an overlay has no field {', '.join(sorted(unknown))}")


def apply_overlays(overlays: Iterable[Overlay], catalog: Catalog) -> Additions:
    """Return what the overlays add to a server."""
    tools = {tool.name: tool for tool in catalog.tools}
    applied = [overlay for overlay in overlays if tools.keys() >= set(overlay.needs)]
    results = {name: result for overlay in applied for name, result in overlay.results.items() if name in tools}
    shown = tuple(_describe_result(tool, results.get(tool.name)) for tool in catalog.tools)
    catalog = Catalog(server=catalog.server, tools=shown) if results else catalog
    tools = {tool.name: tool for tool in catalog.tools}
    taken = {tool.function for tool in catalog.tools}
    functions: dict[str, AddedFunction] = {}
    composed: dict[str, ComposedFunction] = {}
    for overlay in applied:
        for alias, name in sorted(overlay.aliases.items()):
            if name in tools and alias not in taken:
                functions[alias] = AddedFunction(tool=replace(tools[name], function=alias))
        for name, call in sorted(overlay.calls.items()):
            if name not in taken and call.tool in tools and _accepts(tools[call.tool], call):
                functions[name] = AddedFunction(
                    tool=_describe_call(tools[call.tool], name, call), arguments=call.arguments
                )
        composed |= {
            name: function
            for name, function in sorted(overlay.functions.items())
            if name not in taken and tools.keys() >= set(function.needs)
        }
        taken |= {*functions, *composed}
    return Additions(
        catalog=catalog,
        functions=functions,
        composed=composed,
        spellings={
            name: _select_spellings(tools[name], spellings)
            for overlay in applied
            for name, spellings in overlay.spellings.items()
            if name in tools
        },
        result_formats={name: result.format for name, result in results.items()},
    )


def _describe_result(tool: Tool, result: ResultOverlay | None) -> Tool:
    return tool if result is None else replace(tool, output_schema=result.output_schema, inferred=False)


def _list_properties(tool: Tool) -> Mapping[str, Any]:
    properties = tool.input_schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _accepts(tool: Tool, call: ToolCall) -> bool:
    """Return whether the tool has the fixed parameters and allows their values."""
    properties = _list_properties(tool)
    for name, value in call.arguments.items():
        schema = properties.get(name)
        values = schema.get("enum") if isinstance(schema, Mapping) else None
        if name not in properties or (isinstance(values, list) and value not in values):
            return False
    return True


def _describe_call(tool: Tool, function: str, call: ToolCall) -> Tool:
    properties = _list_properties(tool)
    schema = {
        "type": "object",
        "properties": {name: properties[name] for name in call.parameters if name in properties},
        "required": [name for name in call.required if name in properties],
    }
    return replace(tool, function=function, description=call.summary, input_schema=schema, output_schema=None)


def _select_spellings(tool: Tool, spellings: Mapping[str, str]) -> dict[str, str]:
    properties = _list_properties(tool)
    return {other: name for other, name in spellings.items() if name in properties and other not in properties}


def read_result(format_name: str, value: Any) -> Any:
    """Return the value that a result contains, or the result itself if it does not have the format."""
    reader = FORMATS.get(format_name)
    return value if reader is None else reader(value)


def _read_untrusted_data(value: Any) -> Any:
    """Return the JSON between the boundaries that Supabase's server puts around data, which warn models.

    The boundaries have a random name, and the JSON is a single line, so text in the data can't end it. The server
    sends only the text, or as the only field `result` of an object.
    """
    text = value.get("result") if isinstance(value, Mapping) and value.keys() == {"result"} else value
    if not isinstance(text, str) or (boundary := _BOUNDARY.search(text, 0, _HEAD)) is None:
        return value
    opening, closing = f"<{boundary[1]}>\n", f"</{boundary[1]}>"
    start = text.find(opening)
    end = text.rfind(closing)
    if start < 0 or end < start:
        return value
    try:
        return json.loads(text[start + len(opening) : end])
    except (ValueError, RecursionError):
        return value


def _read_only_list(value: Any) -> Any:
    """Return the only list among the fields of an object: `{"tables": [...], "advisory": "..."}`."""
    lists = [field for field in value.values() if isinstance(field, list)] if isinstance(value, Mapping) else []
    return lists[0] if len(lists) == 1 else value


FORMATS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "only_list": _read_only_list,
    "untrusted_data": _read_untrusted_data,
}
"""The reader of each format."""
