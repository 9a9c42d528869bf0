"""Catalogs of MCP tools, as `tools/list` of a server returns them."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self

from mcp_exec_tools.names import camel_case, function_names, identifier, snake_case

Schema = Mapping[str, Any]

SKILLS: Final = "skills"
"""Package of skills, in place of a server's name."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool. Its texts and schemas come from the server and are not trusted."""

    name: str
    """Its name on the server."""
    function: str
    """The name of its Python function."""
    title: str = ""
    """The server's name of the tool for people."""
    description: str = ""
    input_schema: Schema = field(default_factory=lambda: {"type": "object"})
    output_schema: Schema | None = None
    inferred: bool = False
    """Whether the output schema was inferred from results and not declared by the server."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """Hints such as `readOnlyHint` and `destructiveHint`."""

    @property
    def returned_schema(self) -> Schema | None:
        """The schema of the value that code receives, or None if it is unknown.

        Some SDKs wrap a value that is not an object. The broker unwraps the value, so this schema is unwrapped too.
        """
        schema = self.output_schema
        if schema is None or self.inferred:
            return schema
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        is_wrapped = properties.keys() == {"result"} and schema.get("required") == ["result"]
        if not is_wrapped and schema.get("x-fastmcp-wrap-result") is not True:
            return schema
        result = properties.get("result")
        definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        return {**result, **definitions} if isinstance(result, Mapping) else {}

    def to_json(self) -> dict[str, Any]:
        """Return the tool as an entry of `tools/list`, with `inferred` if its output schema is inferred."""
        entry: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
        }
        if self.title:
            entry["title"] = self.title
        if self.output_schema is not None:
            entry["outputSchema"] = self.output_schema
        if self.annotations:
            entry["annotations"] = self.annotations
        return entry | ({"inferred": True} if self.inferred else {})


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """Tools of one server, ordered by name."""

    server: str
    """The ToolServer's name or the key of a configuration. Never the name that the server reports."""
    tools: tuple[Tool, ...]
    has_skills: bool = False
    """Whether these are skills, by the names of their modules, and no server's tools."""

    @classmethod
    def from_skills(cls, skills: Iterable[Mapping[str, Any]]) -> Self:
        """Create the catalog of skills from entries like those of `tools/list`. Raises ValueError if one is none."""
        return replace(cls.from_tools(SKILLS, skills), has_skills=True)

    @classmethod
    def from_tools(cls, server: str, tools: Iterable[Mapping[str, Any]]) -> Self:
        """Create a catalog from entries of `tools/list`, in the spelling of the protocol or of the Python SDK.

        The first of two entries with the same name counts. Raises ValueError if an entry is not a tool.
        """
        entries: dict[str, Mapping[str, Any]] = {}
        for entry in tools:
            if not isinstance(entry, Mapping) or not isinstance(name := entry.get("name"), str) or not name:
                raise ValueError(f"an entry of {server}'s tools has no name")
            entries.setdefault(name, entry)
        functions = function_names(entries)
        return cls(
            server=server,
            tools=tuple(_tool(entry, functions[name]) for name, entry in sorted(entries.items())),
        )

    @property
    def module(self) -> str:
        """The name of the server's package under `servers`, unless two collide: see `assign_modules`."""
        return identifier(self.server)

    @cached_property
    def hash(self) -> str:
        """The digest of the tools: 16 hexadecimal digits."""
        text = json.dumps([self.server, [tool.to_json() for tool in self.tools]], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def spellings(self) -> dict[str, Tool]:
        """Tools by their name, function, and name in snake_case and camelCase. The first two have precedence."""
        tools: dict[str, Tool] = {tool.name: tool for tool in self.tools}
        for tool in self.tools:
            tools.setdefault(tool.function, tool)
        for tool in self.tools:
            for spelling in (snake_case(tool.name), camel_case(tool.name), camel_case(tool.name, initialisms=True)):
                tools.setdefault(spelling, tool)
        return tools


def assign_modules(catalogs: Iterable[Catalog]) -> dict[str, str]:
    """Return the package name of each server.

    If two names collide, the server that is later in the alphabet gets a suffix made from its name.
    """
    modules: dict[str, str] = {}
    taken: set[str] = set()
    for catalog in sorted(catalogs, key=lambda catalog: catalog.server):
        module = catalog.module
        if len(module) > 64 or module.casefold() in taken:
            module = f"{module[:57]}_{hashlib.sha256(catalog.server.encode(errors='replace')).hexdigest()[:6]}"
        modules[catalog.server] = module
        taken.add(module.casefold())
    return modules


def _tool(entry: Mapping[str, Any], function: str) -> Tool:
    description, title = entry.get("description"), entry.get("title")
    schema = entry.get("inputSchema", entry.get("input_schema"))
    output, annotations = entry.get("outputSchema", entry.get("output_schema")), entry.get("annotations")
    return Tool(
        name=entry["name"],
        function=function,
        title=title if isinstance(title, str) else "",
        description=description if isinstance(description, str) else "",
        input_schema=schema if isinstance(schema, Mapping) else {"type": "object"},
        output_schema=output if isinstance(output, Mapping) else None,
        inferred=entry.get("inferred") is True,
        annotations=annotations if isinstance(annotations, Mapping) else {},
    )
