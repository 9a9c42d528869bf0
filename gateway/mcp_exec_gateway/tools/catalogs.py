"""Tool catalogs of each namespace, read from the broker and indexed for search."""

import asyncio
import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Any, Final, Self

from cachetools import LRUCache

from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.ttl_cache import CoalescingCache
from mcp_exec_gateway.http.problems import HttpProblem, unavailable
from mcp_exec_tools.catalog import Catalog, Tool
from mcp_exec_tools.names import matches_any
from mcp_exec_tools.schemas.model_schema import ModelSchema, build_model_schema
from mcp_exec_tools.search.index import Index

log = logging.getLogger(__name__)

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


FRESH_SECONDS: Final = 5.0
"""Time to live of a namespace's catalogs."""
_TIMEOUT_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class NamespaceTools:
    """The tools of a namespace."""

    version: str
    """A digest that changes with the tools and with what ToolServers say of them."""
    catalogs: dict[str, Catalog]
    """Catalogs by server."""
    index: Index
    exported: ExportedTools
    """The tools as MCP clients see them."""

    @classmethod
    def from_answer(cls, version: str, answer: Object, skills: Catalog | None = None) -> Self:
        """Read the broker's answer. Raises BrokerError. Takes long if there are many tools."""
        servers: Any = answer.get("servers")
        if not isinstance(servers, list):
            raise BrokerError("the broker's answer has no list of servers")
        try:
            catalogs = [Catalog.from_tools(str(server["server"]), server["tools"]) for server in servers]
            index = Index([*catalogs, *([skills] if skills is not None else [])])
            direct = {str(server["server"]): frozenset(map(str, server.get("direct") or ())) for server in servers}
        except (ValueError, TypeError, KeyError) as error:
            raise BrokerError(f"the broker's catalog is malformed: {type(error).__name__} {error}") from error
        return cls(
            version=version,
            catalogs={catalog.server: catalog for catalog in catalogs},
            index=index,
            exported=ExportedTools.build(catalogs, direct=direct),
        )


@dataclass(kw_only=True)
class ToolCatalogs:
    """Catalogs by namespace. While the broker does not answer, its last answer is used, however old it is."""

    broker: BrokerClient | None
    """None if no broker is configured."""
    skills: Callable[[str], tuple[int, Catalog | None]] = lambda namespace: (0, None)
    """Returns the approved skills of a namespace, which searches find, and a number that changes with them."""
    clock: Callable[[], float] = monotonic
    _fresh: CoalescingCache[str, NamespaceTools] = field(init=False)
    _last: dict[str, NamespaceTools] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._fresh = CoalescingCache(ttl_seconds=lambda _: FRESH_SECONDS, clock=lambda: self.clock())

    def expire(self) -> None:
        """Read the catalogs again at the next request."""
        self._fresh.clear()

    async def get(self, namespace: str) -> NamespaceTools:
        """Return the tools of a served namespace. Raises HttpProblem if there are none."""
        return await self._fresh.get(namespace, lambda: self._fetch(namespace))

    async def get_index(self, namespace: str) -> Index:
        """Return the search index of a served namespace. Raises HttpProblem if there is none."""
        return (await self.get(namespace)).index

    async def count_tools(self, namespace: str, *, allow: Iterable[str] | None) -> dict[str, int]:
        """Return the number of tools that match the patterns, by server. Raises HttpProblem if it is unknown."""
        allowed = await self._list_allowed(namespace, allow)
        return {name: len(tools) for name, tools in sorted(allowed.items()) if tools}

    async def list_tools(self, namespace: str, server: str, *, allow: Iterable[str] | None) -> list[Tool]:
        """Return a server's tools that match the patterns, or all. Raises HttpProblem, a 404, if there are none."""
        allowed = await self._list_allowed(namespace, allow)
        if not allowed.get(server):
            others = ", ".join(name for name, tools in sorted(allowed.items()) if tools) or "none"
            detail = f"there are no tools of a server {server[:100]!r} in this namespace; servers with tools: {others}"
            raise HttpProblem("not-found", 404, detail)
        return allowed[server]

    async def _list_allowed(self, namespace: str, allow: Iterable[str] | None) -> dict[str, list[Tool]]:
        """Return the tools that match the patterns, or all, by server."""
        patterns = None if allow is None else list(allow)
        return {
            name: [
                tool for tool in catalog.tools if patterns is None or matches_any(patterns, server=name, tool=tool.name)
            ]
            for name, catalog in (await self.get(namespace)).catalogs.items()
        }

    async def _fetch(self, namespace: str) -> NamespaceTools:
        last = self._last.get(namespace)
        number, skills = self.skills(namespace)
        if self.broker is None:
            if skills is None:
                raise unavailable("no tool broker is configured")
            return await asyncio.to_thread(NamespaceTools.from_answer, str(number), {"servers": []}, skills)
        try:
            answer = await self.broker.get(f"/v1/namespaces/{namespace}/catalog", timeout_seconds=_TIMEOUT_SECONDS)
            version = f"{_compute_version(answer)} {number}"
            if last is None or last.version != version:
                # in a thread, because many tools take longer to index than other requests should wait
                last = await asyncio.to_thread(NamespaceTools.from_answer, version, answer, skills)
                self._last[namespace] = last
        except BrokerError as error:
            log.warning("no new tool catalogs of namespace %s: %s", namespace, error)
            if last is None:
                raise unavailable("the tool broker does not answer") from error
        return last


def _compute_version(answer: Object) -> str:
    """Return the hash of the catalogs, with what is not part of it: the tools that ToolServers mark as direct."""
    servers: Any = answer.get("servers")
    marks = (
        [server.get("direct") for server in servers if isinstance(server, dict)] if isinstance(servers, list) else []
    )
    return f"{answer.get('hash')} {json.dumps(marks)}"
