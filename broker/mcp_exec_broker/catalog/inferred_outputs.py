"""Output schemas inferred from results, for tools that declare none.

A schema grows from the first results of a tool and from some later ones. It is stored in the ToolServer's status as
long as the server lists the tool without an output schema.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mcp_exec_broker.upstream.servers import ToolServer
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_tools.catalog import Tool

_FIRST_RESULTS: Final = 20
"""Results of a tool that are all observed; afterwards every hundredth."""
_INTERVAL: Final = 100
_MAX_RESULT_BYTES: Final = 64 * 1024
"""Size of an observed result."""
_MAX_SCHEMA_BYTES: Final = 8 * 1024
_MAX_TOOLS: Final = 100
"""Tools of one server with an inferred schema."""
_MAX_STATUS_BYTES: Final = 256 * 1024

Schemas = dict[str, dict[str, Any]]


@dataclass(kw_only=True, eq=False)
class OutputInference:
    """Inferred schemas by server and tool."""

    _schemas: dict[ObjectKey, Schemas] = field(default_factory=dict)
    _seen: dict[ObjectKey, dict[str, int]] = field(default_factory=dict)
    _listed: dict[ObjectKey, frozenset[str]] = field(default_factory=dict)
    """Tools that each server lists for no user in particular and that declare no output. Before the first listing every
    tool is accepted."""

    def get_schemas(self, key: ObjectKey) -> Schemas:
        """Return the schemas of a server by tool."""
        return self._schemas.get(key, {})

    def restore(self, server: ToolServer) -> None:
        """Add schemas from a ToolServer's status, written by an earlier process or another replica."""
        stored = server.status.get("inferredOutputs")
        if not isinstance(stored, Mapping):
            return
        schemas = self._schemas.setdefault(server.key, {})
        for tool, schema in stored.items():
            is_new = tool not in schemas and self._accepts(server.key, tool)
            if is_new and isinstance(schema, dict) and len(schemas) < _MAX_TOOLS:
                schemas[tool] = schema

    def retain(self, key: ObjectKey, tools: Iterable[str]) -> None:
        """Drop all schemas but those of these tools, which the server lists without an output schema."""
        self._listed[key] = frozenset(tools)
        for by_tool in (self._schemas.get(key, {}), self._seen.get(key, {})):
            for tool in by_tool.keys() - self._listed[key]:
                del by_tool[tool]

    def remove(self, key: ObjectKey) -> None:
        """Drop the schemas of a deleted server."""
        self._listed.pop(key, None)
        self._schemas.pop(key, None)
        self._seen.pop(key, None)

    def observe(self, key: ObjectKey, tool: Tool, value: Any, *, size: int) -> bool:
        """Infer from a result of a tool without a declared schema, and return whether its inferred schema changed."""
        declares = tool.output_schema is not None and not tool.inferred
        if declares or size > _MAX_RESULT_BYTES or not self._accepts(key, tool.name):
            return False
        seen = self._seen.setdefault(key, {})
        seen[tool.name] = count = seen.get(tool.name, 0) + 1
        if count > _FIRST_RESULTS and count % _INTERVAL:
            return False
        schemas = self._schemas.setdefault(key, {})
        before = schemas.get(tool.name)
        if before is None and len(schemas) >= _MAX_TOOLS:
            return False
        schema = _infer_schema(before, value)
        if schema == before or len(json.dumps(schema)) > _MAX_SCHEMA_BYTES:
            return False
        if len(json.dumps({**schemas, tool.name: schema})) > _MAX_STATUS_BYTES:
            return False
        schemas[tool.name] = schema
        return True

    def _accepts(self, key: ObjectKey, tool: str) -> bool:
        listed = self._listed.get(key)
        return listed is None or tool in listed


def add_inferred_output(tool: Tool, schemas: Schemas) -> Tool:
    """Return the tool with its inferred output schema if it declares none."""
    if tool.output_schema is not None and not tool.inferred:
        return tool
    schema = schemas.get(tool.name)
    return replace(tool, output_schema=schema, inferred=True) if schema else tool


def _infer_schema(before: dict[str, Any] | None, value: Any) -> dict[str, Any]:
    from mcp_exec_tools.output_inference import infer_schema, widen_schema

    return dict(infer_schema([value]) if before is None else widen_schema(before, value))
