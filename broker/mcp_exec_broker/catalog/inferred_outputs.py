"""What tools return, seen and remembered where their servers do not declare it.

A schema grows from the first results of a tool, and from a few later ones; it is kept in the ToolServer's status, for
as long as the server lists the tool without declaring it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mcp_exec_broker.upstream.servers import ToolServer
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_tools.catalog import Tool

_FIRST: Final = 20
"""Results of a tool that are all looked at; after them each hundredth is."""
_EVERY: Final = 100
_MOST_BYTES: Final = 64 * 1024
"""Of a result that is looked at."""
_MOST_SCHEMA_BYTES: Final = 8 * 1024
_MOST_TOOLS: Final = 100
"""Remembered of one server; with their size that is what a status may hold."""
_MOST_STATUS_BYTES: Final = 256 * 1024

Schemas = dict[str, dict[str, Any]]


@dataclass(kw_only=True, eq=False)
class OutputInference:
    """The schemas of all servers. `on_change` is told of a server of which something new was learned."""

    on_change: Callable[[ObjectKey], None] = lambda key: None
    _schemas: dict[ObjectKey, Schemas] = field(default_factory=dict)
    _seen: dict[ObjectKey, dict[str, int]] = field(default_factory=dict)
    _listed: dict[ObjectKey, frozenset[str]] = field(default_factory=dict)
    """The tools that each server lists, without a user, and that declare no output. Of a server that has listed none
    yet, none is known to be gone."""

    def of(self, key: ObjectKey) -> Schemas:
        """What is known of a server's tools, by their names."""
        return self._schemas.get(key, {})

    def take_in(self, server: ToolServer) -> None:
        """Takes in what a ToolServer's status remembers: of this broker's earlier life, or of another replica."""
        stored = server.status.get("inferredOutputs")
        if not isinstance(stored, Mapping):
            return
        known = self._schemas.setdefault(server.key, {})
        for tool, schema in stored.items():
            is_new = tool not in known and self._has(server.key, tool)
            if is_new and isinstance(schema, dict) and len(known) < _MOST_TOOLS:
                known[tool] = schema

    def keep(self, key: ObjectKey, tools: Iterable[str]) -> None:
        """Forgets what is known of all but these: the tools that the server has and that declare no output."""
        self._listed[key] = frozenset(tools)
        for kept in (self._schemas.get(key, {}), self._seen.get(key, {})):
            for tool in kept.keys() - self._listed[key]:
                del kept[tool]

    def forget(self, key: ObjectKey) -> None:
        """The server is gone."""
        self._listed.pop(key, None)
        self._schemas.pop(key, None)
        self._seen.pop(key, None)

    def observe(self, key: ObjectKey, tool: Tool, value: Any, *, size: int) -> None:
        """Learns from a result of a tool that declares none."""
        declares = tool.output_schema is not None and not tool.inferred
        if declares or size > _MOST_BYTES or not self._has(key, tool.name):
            return
        seen = self._seen.setdefault(key, {})
        seen[tool.name] = count = seen.get(tool.name, 0) + 1
        if count > _FIRST and count % _EVERY:
            return
        known = self._schemas.setdefault(key, {})
        before = known.get(tool.name)
        if before is None and len(known) >= _MOST_TOOLS:
            return
        schema = _learned(before, value)
        if schema == before or len(json.dumps(schema)) > _MOST_SCHEMA_BYTES:
            return
        if len(json.dumps({**known, tool.name: schema})) > _MOST_STATUS_BYTES:
            return
        known[tool.name] = schema
        self.on_change(key)

    def _has(self, key: ObjectKey, tool: str) -> bool:
        listed = self._listed.get(key)
        return listed is None or tool in listed


def add_inferred_output(tool: Tool, schemas: Schemas) -> Tool:
    """The tool with the output that is remembered, where it declares none."""
    if tool.output_schema is not None and not tool.inferred:
        return tool
    schema = schemas.get(tool.name)
    return replace(tool, output_schema=schema, inferred=True) if schema else tool


def _learned(before: dict[str, Any] | None, value: Any) -> dict[str, Any]:
    from mcp_exec_tools.output_inference import infer_schema, widen_schema

    return dict(infer_schema([value]) if before is None else widen_schema(before, value))
