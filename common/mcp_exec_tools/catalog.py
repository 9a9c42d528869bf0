"""What a server's tools are, as its `tools/list` answered."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from mcp_exec_tools.names import camel_case, function_names, identifier, snake_case

Schema = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool. What it says of itself comes from its server, and is not trusted."""

    name: str
    """Its name at the server."""
    function: str
    """What it is called in Python."""
    description: str = ""
    input_schema: Schema = field(default_factory=lambda: {"type": "object"})
    output_schema: Schema | None = None
    inferred: bool = False
    """Whether the output schema was made from results that were seen, and not declared."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """Hints such as `readOnlyHint` and `destructiveHint`."""

    @property
    def returned_schema(self) -> Schema | None:
        """The schema of the value that code gets, where it is known.

        It is without the wrapping that some SDKs put around what is no object, as the broker takes that off the value.
        """
        schema = self.output_schema
        if schema is None or self.inferred:
            return schema
        parts = schema.get("properties")
        parts = parts if isinstance(parts, Mapping) else {}
        alone = parts.keys() == {"result"} and schema.get("required") == ["result"]
        if not alone and schema.get("x-fastmcp-wrap-result") is not True:
            return schema
        found = parts.get("result")
        kept = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        return {**found, **kept} if isinstance(found, Mapping) else {}

    def to_json(self) -> dict[str, Any]:
        """The tool as an entry of `tools/list`, with `inferred` where it is."""
        found: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
        }
        if self.output_schema is not None:
            found["outputSchema"] = self.output_schema
        if self.annotations:
            found["annotations"] = self.annotations
        return found | ({"inferred": True} if self.inferred else {})


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The tools of one server, ordered by name."""

    server: str
    """What code calls the server: the ToolServer's name, or the key of a configuration, never what it says itself."""
    tools: tuple[Tool, ...]

    @classmethod
    def from_tools(cls, server: str, tools: Iterable[Mapping[str, Any]]) -> Self:
        """From the entries of `tools/list`, in the wire's or the Python SDK's spelling; of two alike the first counts.

        Raises ValueError where an entry is no tool.
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
        """What the server's package is called under `servers`, where no other is called so: see `assign_modules`."""
        return identifier(self.server)

    @cached_property
    def hash(self) -> str:
        """What tells these tools from others: 16 hexadecimal digits."""
        text = json.dumps([self.server, [tool.to_json() for tool in self.tools]], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def spellings(self) -> dict[str, Tool]:
        """Each tool by its own name, its function, and its name in snake_case and camelCase; the first two win."""
        found: dict[str, Tool] = {tool.name: tool for tool in self.tools}
        for tool in self.tools:
            found.setdefault(tool.function, tool)
        for tool in self.tools:
            for spelling in (snake_case(tool.name), camel_case(tool.name)):
                found.setdefault(spelling, tool)
        return found


def assign_modules(catalogs: Iterable[Catalog]) -> dict[str, str]:
    """What each server's package is called: where two meet, the later by name gets a suffix made from its name."""
    found: dict[str, str] = {}
    for catalog in sorted(catalogs, key=lambda each: each.server):
        module = catalog.module
        if len(module) > 64 or module.casefold() in {each.casefold() for each in found.values()}:
            module = f"{module[:57]}_{hashlib.sha256(catalog.server.encode(errors='replace')).hexdigest()[:6]}"
        found[catalog.server] = module
    return found


def _tool(entry: Mapping[str, Any], function: str) -> Tool:
    description = entry.get("description")
    schema = entry.get("inputSchema", entry.get("input_schema"))
    output, annotations = entry.get("outputSchema", entry.get("output_schema")), entry.get("annotations")
    return Tool(
        name=entry["name"],
        function=function,
        description=description if isinstance(description, str) else "",
        input_schema=schema if isinstance(schema, Mapping) else {"type": "object"},
        output_schema=output if isinstance(output, Mapping) else None,
        inferred=entry.get("inferred") is True,
        annotations=annotations if isinstance(annotations, Mapping) else {},
    )
