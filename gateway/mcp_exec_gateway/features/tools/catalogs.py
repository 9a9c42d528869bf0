"""Tool catalogs of each namespace, read from the broker and indexed for search."""

import asyncio
import hashlib
import json
import logging
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Any, Final, Self, TypeVar

from cachetools import LRUCache

from mcp_exec_api.constants import DEFAULT_LANGUAGE, Language
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.ttl_cache import CoalescingCache
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.http.limits import CallerThreads
from mcp_exec_gateway.core.http.problems import HttpProblem, unavailable
from mcp_exec_tools.catalog import Catalog, Tool
from mcp_exec_tools.names import explain_missing_server
from mcp_exec_tools.patterns import ToolPatterns
from mcp_exec_tools.schemas.model_schema import ModelSchema, build_model_schema
from mcp_exec_tools.search.index import Index

log = logging.getLogger(__name__)

Result = TypeVar("Result")

MAX_NAME: Final = 64
"""Characters of a name. MCP allows 128, but interfaces of models 64."""
_SEPARATOR: Final = "__"
_OTHER_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST: Final = 8
_SERVER_PART: Final = 20
"""Characters that the server's name keeps in a name that must be cut."""
_MAX_CALLERS: Final = 64
_MAX_SELECTIONS: Final = 4
"""Selections of one caller: those of several modes, or of several sets of patterns."""


@dataclass(frozen=True, kw_only=True)
class ToolRights:
    """Tools that a caller may use: those that match each list of `allow`, and not `deny`."""

    allow: tuple[tuple[str, ...], ...]
    deny: tuple[str, ...] = ()

    def allows(self, tool: "ExportedTool") -> bool:
        """Return whether the caller may use the tool."""
        allow, deny = self._compiled
        server, name = tool.server, tool.tool.name
        return not deny.match(server, name) and all(patterns.match(server, name) for patterns in allow)

    @cached_property
    def _compiled(self) -> tuple[list[ToolPatterns], ToolPatterns]:
        return [ToolPatterns(patterns) for patterns in self.allow], ToolPatterns(self.deny)


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

    @cached_property
    def digest(self) -> bytes:
        """A digest that changes whenever the tool does."""
        return hashlib.sha256(f"{self.name} {self.tool!r}".encode(errors="surrogatepass")).digest()

    @property
    def path(self) -> str:
        """SERVER.TOOL."""
        return f"{self.server}.{self.tool.name}"


@dataclass(kw_only=True, eq=False)
class ExportedTools:
    """All tools of a namespace by their names, in alphabetical order."""

    by_name: Mapping[str, ExportedTool]
    _selections: "LRUCache[str, LRUCache[tuple[ToolRights, bool], ToolSelection]]" = field(
        default_factory=lambda: LRUCache(_MAX_CALLERS)
    )
    """By caller, so that no caller's patterns drop the selections of others."""

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

    async def select(
        self, rights: ToolRights, *, caller: str, threads: CallerThreads, only_direct: bool = False
    ) -> "ToolSelection":
        """Return the tools that a caller may use, or those of them that are marked as cheap. Raises HttpProblem."""
        key = (rights, only_direct)
        own = self._selections.get(caller)
        if own is None:
            own = self._selections[caller] = LRUCache(_MAX_SELECTIONS)
        selection = own.get(key)
        if selection is None:
            selection = own[key] = await threads.run(caller, lambda: self._select(rights, only_direct))
        return selection

    def _select(self, rights: ToolRights, only_direct: bool) -> "ToolSelection":
        tools = [tool for tool in self.by_name.values() if tool.is_direct or not only_direct]
        return ToolSelection(tools=[tool for tool in tools if rights.allows(tool)])


@dataclass(kw_only=True, eq=False)
class ToolSelection:
    """The tools that one caller may use, in alphabetical order."""

    tools: Sequence[ExportedTool]

    def find(self, name: str) -> ExportedTool | None:
        """Return the tool with this name, or None."""
        place = bisect_left(self.tools, name, key=lambda tool: tool.name)
        return self.tools[place] if place < len(self.tools) and self.tools[place].name == name else None

    @cached_property
    def digest(self) -> str:
        """A digest that changes whenever one of the tools does."""
        digest = hashlib.sha256()
        for tool in self.tools:
            digest.update(tool.digest)
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
    skills: Mapping[Language, Catalog]
    exported: ExportedTools
    """The tools as MCP clients see them."""
    _indexes: dict[Language, Index] = field(default_factory=dict)

    def get_index(self, language: Language) -> Index:
        """Return the index of the tools and of the skills of a language. It is built at its first use."""
        if (index := self._indexes.get(language)) is None:
            skills = self.skills.get(language)
            index = Index([*self.catalogs.values(), *([skills] if skills is not None else [])])
            self._indexes[language] = index
        return index

    @classmethod
    def from_answer(cls, version: str, answer: Object, skills: Mapping[Language, Catalog]) -> Self:
        """Read the broker's answer. Raises BrokerError. Takes long if there are many tools."""
        servers: Any = answer.get("servers")
        if not isinstance(servers, list):
            raise BrokerError("the broker's answer has no list of servers")
        try:
            catalogs = [Catalog.from_tools(str(server["server"]), server["tools"]) for server in servers]
            direct = {str(server["server"]): frozenset(map(str, server.get("direct") or ())) for server in servers}
            made = cls(
                version=version,
                catalogs={catalog.server: catalog for catalog in catalogs},
                skills=skills,
                exported=ExportedTools.build(catalogs, direct=direct),
            )
            made.get_index(DEFAULT_LANGUAGE)
        except (ValueError, TypeError, KeyError) as error:
            raise BrokerError(f"the broker's catalog is malformed: {type(error).__name__} {error}") from error
        return made


@dataclass(kw_only=True)
class ToolCatalogs:
    """Catalogs by namespace. While the broker does not answer, its last answer is used, however old it is."""

    broker: BrokerClient | None
    """None if no broker is configured."""
    skills: Callable[[str], tuple[int, Mapping[Language, Catalog]]] = lambda namespace: (0, {})
    """Returns the approved skills of a namespace by language, which searches find, and a number that changes with
    them."""
    threads: CallerThreads = field(default_factory=CallerThreads)
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

    async def use_index(
        self, caller: Caller, work: Callable[[Index], Result], *, language: Language = DEFAULT_LANGUAGE
    ) -> Result:
        """Return what the work finds in the search index of the caller's namespace. Raises HttpProblem.

        The index has the skills of one language.
        """
        tools = await self.get(caller.namespace)
        return await self.threads.run(caller.name, lambda: work(tools.get_index(language)))

    async def count_tools(self, caller: Caller) -> dict[str, int]:
        """Return the number of tools that the caller may use, by server. Raises HttpProblem if it is unknown."""
        allowed = await self._list_allowed(caller)
        return {name: len(tools) for name, tools in sorted(allowed.items()) if tools}

    async def list_tools(self, caller: Caller, server: str) -> list[Tool]:
        """Return a server's tools that the caller may use. Raises HttpProblem, a 404, if there are none."""
        allowed = await self._list_allowed(caller)
        if not allowed.get(server):
            others = [name for name, tools in allowed.items() if tools]
            raise HttpProblem("not-found", 404, explain_missing_server(server, others))
        return allowed[server]

    async def _list_allowed(self, caller: Caller) -> dict[str, list[Tool]]:
        """Return the tools that the caller may use, by server."""
        catalogs, patterns = (await self.get(caller.namespace)).catalogs, caller.limits.known_tools
        if patterns is None:
            return {name: list(catalog.tools) for name, catalog in catalogs.items()}
        return await self.threads.run(
            caller.name,
            lambda: {
                name: [tool for tool in catalog.tools if patterns.match(name, tool.name)]
                for name, catalog in catalogs.items()
            },
        )

    async def _fetch(self, namespace: str) -> NamespaceTools:
        last = self._last.get(namespace)
        number, skills = self.skills(namespace)
        if self.broker is None:
            if not skills:
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
