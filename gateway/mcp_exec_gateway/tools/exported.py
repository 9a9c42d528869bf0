"""Tools of a namespace as MCP clients see them: names that every client accepts, in an order that does not change."""

import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Self

from cachetools import LRUCache

from mcp_exec_tools.catalog import Catalog, Tool
from mcp_exec_tools.patterns import matches_any
from mcp_exec_tools.schemas.model_schema import ModelSchema, build_model_schema

MAX_NAME: Final = 64
"""Characters of a name. MCP allows 128, but interfaces of models 64."""
_SEPARATOR: Final = "__"
_OTHER_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST: Final = 8
_SERVER_PART: Final = 20
"""Characters that the server's name keeps in a name that must be cut."""
_MAX_SELECTIONS: Final = 64
_INLINE_COMPARISONS: Final = 20_000
"""Comparisons of a tool with a pattern that take a millisecond or two."""


@dataclass(frozen=True, kw_only=True)
class ToolRights:
    """Tools that a caller may use: those that match each list of `allow`, and not `deny`."""

    allow: tuple[tuple[str, ...], ...]
    deny: tuple[str, ...] = ()

    def allows(self, tool: "ExportedTool") -> bool:
        """Return whether the caller may use the tool."""
        return not self._matches(self.deny, tool) and all(self._matches(patterns, tool) for patterns in self.allow)

    @property
    def size(self) -> int:
        """Number of patterns."""
        return len(self.deny) + sum(map(len, self.allow))

    @staticmethod
    def _matches(patterns: Iterable[str], tool: "ExportedTool") -> bool:
        return matches_any(patterns, server=tool.server, tool=tool.tool.name)


@dataclass(frozen=True, kw_only=True)
class ExportedTool:
    """A tool with its name for MCP clients."""

    name: str
    """SERVER__TOOL, of letters, digits, `_` and `-`, at most 64 characters."""
    server: str
    tool: Tool
    is_direct: bool
    """Whether its ToolServer marks it as cheap."""

    @cached_property
    def size(self) -> int:
        """Bytes of the definition, about."""
        return len(json.dumps({**self.tool.to_json(), "inputSchema": self.model.schema}))

    @cached_property
    def model(self) -> ModelSchema:
        """Schema and description for models."""
        return build_model_schema(self.tool.input_schema, self.tool.description)

    @property
    def path(self) -> str:
        """SERVER.TOOL."""
        return f"{self.server}.{self.tool.name}"


@dataclass(kw_only=True, eq=False)
class ExportedTools:
    """All tools of a namespace by their names, in alphabetical order."""

    by_name: Mapping[str, ExportedTool]
    _selections: LRUCache[tuple[ToolRights, bool], "ToolSelection"] = field(
        default_factory=lambda: LRUCache(_MAX_SELECTIONS)
    )

    @classmethod
    def build(cls, catalogs: Iterable[Catalog], *, direct: Mapping[str, frozenset[str]]) -> Self:
        """Name the tools. `direct` has the names of the marked tools by server."""
        tools = [(catalog.server, tool) for catalog in catalogs for tool in catalog.tools]
        # all tools of one plain name get a digest, so that a name never comes to mean another tool
        counts = Counter(_format_name(server, tool.name) for server, tool in tools)
        exported = [
            ExportedTool(
                name=_format_name(server, tool.name, is_unique=counts[_format_name(server, tool.name)] == 1),
                server=server,
                tool=tool,
                is_direct=tool.name in direct.get(server, ()),
            )
            for server, tool in tools
        ]
        return cls(by_name={tool.name: tool for tool in sorted(exported, key=lambda tool: tool.name)})

    async def select(self, rights: ToolRights, *, only_direct: bool = False) -> "ToolSelection":
        """Return the tools that a caller may use, or those of them that are marked as cheap."""
        key = (rights, only_direct)
        selection = self._selections.get(key)
        if selection is None:
            if len(self.by_name) * rights.size > _INLINE_COMPARISONS:
                selection = await asyncio.to_thread(self._select, rights, only_direct)
            else:
                selection = self._select(rights, only_direct)
            self._selections[key] = selection
        return selection

    def _select(self, rights: ToolRights, only_direct: bool) -> "ToolSelection":
        tools = [tool for tool in self.by_name.values() if tool.is_direct or not only_direct]
        return ToolSelection(tools=[tool for tool in tools if rights.allows(tool)])


@dataclass(kw_only=True, eq=False)
class ToolSelection:
    """The tools that one caller may use, by name."""

    tools: Sequence[ExportedTool]

    @cached_property
    def by_name(self) -> dict[str, ExportedTool]:
        """Tools by their names."""
        return {tool.name: tool for tool in self.tools}

    @cached_property
    def digest(self) -> str:
        """A digest that changes whenever one of the tools does."""
        digest = hashlib.sha256()
        for tool in self.tools:
            digest.update(f"{tool.name} {tool.tool!r}\n".encode(errors="surrogatepass"))
        return digest.hexdigest()


def _format_name(server: str, tool: str, *, is_unique: bool = True) -> str:
    name = _OTHER_CHARACTERS.sub("_", f"{server}{_SEPARATOR}{tool}")
    if is_unique and len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(f"{server}.{tool}".encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    room = MAX_NAME - _DIGEST - 1
    if len(name) > room:
        head = _OTHER_CHARACTERS.sub("_", server)[:_SERVER_PART] + _SEPARATOR
        name = (head + _OTHER_CHARACTERS.sub("_", tool))[:room]
    return f"{name}_{digest}"
