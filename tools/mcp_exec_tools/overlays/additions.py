"""What overlays add to one server."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcp_exec_tools.catalog import Catalog, Tool
from mcp_exec_tools.overlays.overlay import ComposedFunction, Overlay, ResultOverlay, ToolCall


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
