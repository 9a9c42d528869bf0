"""The tools of all servers: listed at once, listed again in time, and kept where a server is away, also on disk."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from mcp.shared.exceptions import MCPError

from mcp_exec_api.meta import now
from mcp_exec_broker.access.policy import is_visible
from mcp_exec_broker.catalog.disk_cache import CatalogDiskCache
from mcp_exec_broker.catalog.entry import CatalogEntry, ToolListing, build_copy, restore_entry
from mcp_exec_broker.catalog.inferred_outputs import OutputInference, add_inferred_output
from mcp_exec_broker.metrics import Metrics
from mcp_exec_broker.upstream.credentials import CredentialsMissing, UserUnknown
from mcp_exec_broker.upstream.errors import ConnectionLost, ServerUnavailable, SessionError, SessionExpired
from mcp_exec_broker.upstream.redaction import redact_excerpt, redact_json
from mcp_exec_broker.upstream.servers import ToolServer, ToolServerCache
from mcp_exec_broker.upstream.session import ListedTools, UpstreamSession
from mcp_exec_broker.upstream.session_pool import SessionPool
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_tools.catalog import Catalog

log = logging.getLogger(__name__)

_LEAST_SECONDS: Final = 5.0
_MOST_SECONDS: Final = 86_400.0
_FIRST_BACKOFF: Final = 0.5
_LAST_BACKOFF: Final = 30.0
_CALM_SECONDS: Final = 0.25
"""Between two listings of one server: one that never stops to tell of changes is not asked without end."""
_AT_ONCE: Final = 16
_MOST_PERSONAL: Final = 1024


@dataclass(kw_only=True, eq=False)
class CatalogSync:
    """The tools of all servers. `on_change` is told of a server of which something is known anew."""

    servers: ToolServerCache
    connections: SessionPool
    inferences: OutputInference
    metrics: Metrics
    copies: CatalogDiskCache
    timeout_seconds: float = 15.0
    on_change: Callable[[ObjectKey], None] = lambda key: None
    _entries: dict[ObjectKey, CatalogEntry] = field(default_factory=dict)
    _keepers: dict[ObjectKey, asyncio.Task[None]] = field(default_factory=dict)
    _personal: OrderedDict[tuple[ObjectKey, str], ToolListing] = field(default_factory=OrderedDict)
    _locks: dict[tuple[ObjectKey, str], asyncio.Lock] = field(default_factory=dict)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    def entry(self, key: ObjectKey) -> CatalogEntry:
        """What is known of a server."""
        return self._entries.get(key) or CatalogEntry()

    def follow(self, server: ToolServer) -> None:
        """Keeps the server's tools from now on, by what it is now."""
        if server.key in self._keepers:
            self.refresh(server.key)
            return
        self._entries[server.key] = self._restored(server)
        task = asyncio.get_running_loop().create_task(self._keep(server.key), name=f"catalog {'/'.join(server.key)}")
        self._keepers[server.key] = task

    def forget(self, key: ObjectKey) -> None:
        """The server is gone."""
        if (task := self._keepers.pop(key, None)) is not None:
            task.cancel()
        self._entries.pop(key, None)
        self._drop_personal(key)

    def refresh(self, key: ObjectKey, user: str = "") -> None:
        """The tools may have changed: they are listed again, now, or at the user's next call."""
        if user:
            self._personal.pop((key, user), None)
        elif (entry := self._entries.get(key)) is not None:
            entry.failures = 0
            entry.poked.set()
            self._drop_personal(key)

    def relearned(self, key: ObjectKey) -> None:
        """What tools return is known better: the catalog says so."""
        entry, server = self._entries.get(key), self.servers.get(*key)
        if entry is not None and entry.known is not None and server is not None:
            entry.known = self._with_inferred(entry.known, key)

    async def known(self, server: ToolServer, user: str | None) -> ToolListing:
        """The tools for a call on behalf of a user. Raises Unusable and UserUnknown where none were ever listed."""
        shared = self.entry(server.key).known
        if not server.is_personal:
            return shared if shared is not None else await self._first(server)
        if user is None:
            raise UserUnknown("the execution has no user, and the server is called on behalf of users alone")
        if shared is not None and shared.is_public:
            return shared
        return await self._personally(server, user)

    async def close(self) -> None:
        """Lists nothing any more."""
        tasks = list(self._keepers.values())
        for key in list(self._keepers):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    # how they are listed

    async def _first(self, server: ToolServer) -> ToolListing:
        """Lists them for a call that came before anybody had."""
        async with self._locks.setdefault((server.key, ""), asyncio.Lock()):
            if (known := self.entry(server.key).known) is not None:
                return known
            _, known = await self._list(server, None)
            if (entry := self._entries.get(server.key)) is not None:
                entry.known = known
                entry.poked.set()
            return known

    async def _personally(self, server: ToolServer, user: str) -> ToolListing:
        place = (server.key, user)
        known = self._personal.get(place)
        if known is not None and known.expires > monotonic():
            self._personal.move_to_end(place)
            return known
        lock = self._locks.setdefault(place, asyncio.Lock())
        try:
            async with lock:
                if (fresh := self._personal.get(place)) is not None and fresh.expires > monotonic():
                    return fresh
                try:
                    _, fresh = await self._list(server, user)
                except ServerUnavailable:
                    if known is None:
                        raise
                    return known
                self._personal[place] = fresh
                while len(self._personal) > _MOST_PERSONAL:
                    self._personal.popitem(last=False)
                return fresh
        finally:
            if not lock.locked():
                self._locks.pop(place, None)

    async def _keep(self, key: ObjectKey) -> None:
        entry = self._entries[key]
        while True:
            entry.poked.clear()
            server = self.servers.get(*key)
            if server is None:
                return
            wait = await self._refreshed(server, entry)
            self.on_change(key)
            await asyncio.sleep(_CALM_SECONDS)
            try:
                async with asyncio.timeout(wait):
                    await entry.poked.wait()
            except TimeoutError:
                continue

    async def _refreshed(self, server: ToolServer, entry: CatalogEntry) -> float:
        """Lists a server's tools; returns the seconds until that is due again."""
        entry.generation = server.generation
        try:
            async with self._places:
                session, known = await self._shared(server)
        except ServerUnavailable as error:
            self.connections.reread(server)
            entry.available, entry.reason, entry.message = False, error.reason, str(error)
            entry.credentials_found = not error.reason.startswith("Secret")
            entry.failures += 1
            self.metrics.listings.labels("failed").inc()
            return min(_FIRST_BACKOFF * float(2 ** min(entry.failures - 1, 10)), _LAST_BACKOFF)
        entry.known, entry.available, entry.reason, entry.message = known, True, "", ""
        entry.credentials_found, entry.failures, entry.listed_at = True, 0, now()
        entry.protocol_version = session.client.protocol_version if not session.ended else entry.protocol_version
        entry.identity = _identity(session) or entry.identity
        self.copies.put(server, build_copy(entry))
        self.metrics.listings.labels("ok").inc()
        return max(known.expires - monotonic(), _LEAST_SECONDS)

    async def _shared(self, server: ToolServer) -> tuple[UpstreamSession, ToolListing]:
        """The tools as nobody in particular sees them; where the server tells nobody, as one of its users does.

        What is shared thereby are names and schemas; calls are made by each user's own credentials alone.
        """
        try:
            return await self._list(server, None)
        except ServerUnavailable as error:
            user = await self._some_user(server) if error.reason in ("Unauthorized", "ProtocolError") else None
            if user is None:
                raise
            try:
                return await self._list(server, user)
            except UserUnknown:
                raise error from None

    async def _some_user(self, server: ToolServer) -> str | None:
        spec = server.spec
        if spec is None or not spec.user_headers:
            return None
        found: set[str] | None = None
        for header in spec.user_headers:
            try:
                keys = set(await self.connections.secrets.data(server.namespace, header.secret_name))
            except CredentialsMissing:
                return None
            found = keys if found is None else found & keys
        return min((key for key in found or () if not key.startswith("base64-")), default=None)

    async def _list(self, server: ToolServer, user: str | None) -> tuple[UpstreamSession, ToolListing]:
        session: UpstreamSession | None = None
        try:
            async with asyncio.timeout(self.timeout_seconds):
                session = await self.connections.session(server, user)
                try:
                    listing = await session.list_tools()
                except (SessionExpired, ConnectionLost):
                    session = await self.connections.session(server, user)
                    listing = await session.list_tools()
            return session, self._of(server, session, listing, of_user=user is not None)
        except TimeoutError:
            raise ServerUnavailable("Timeout", f"its tools were not listed within {self.timeout_seconds:g} s") from None
        except MCPError as error:
            text = redact_excerpt(error.message, session.secrets if session else (), most=500)
            raise ServerUnavailable("ProtocolError", f"tools/list: {text}") from None
        except (ValueError, OverflowError) as error:
            raise ServerUnavailable("ProtocolError", f"tools/list: {error}") from None
        except ServerUnavailable:
            raise
        except SessionError as error:
            raise ServerUnavailable("ConnectionLost", str(error)) from None
        except UserUnknown:
            raise
        except Exception as error:  # whatever a server answers, the others are listed
            log.warning("tools/list went wrong", extra={"server": "/".join(server.key), "error": type(error).__name__})
            raise ServerUnavailable("ProtocolError", f"tools/list: {type(error).__name__}") from None

    def _of(self, server: ToolServer, session: UpstreamSession, listing: ListedTools, *, of_user: bool) -> ToolListing:
        spec = session.route.spec
        seen = [entry for entry in redact_json(listing.tools, session.secrets) if is_visible(spec, entry["name"])]
        catalog = Catalog.from_tools(server.name, seen)
        life = min(max(listing.ttl_seconds or spec.refresh_seconds, _LEAST_SECONDS), _MOST_SECONDS)
        known = ToolListing(
            catalog=catalog,
            declared={tool.name: tool.output_schema for tool in catalog.tools},
            expires=monotonic() + life,
            is_public=listing.is_public,
            of_user=of_user,
        )
        return self._with_inferred(known, server.key)

    def _with_inferred(self, known: ToolListing, key: ObjectKey) -> ToolListing:
        schemas = self.inferences.of(key)
        if not schemas:
            return known
        tools = tuple(add_inferred_output(tool, schemas) for tool in known.catalog.tools)
        return replace(known, catalog=Catalog(server=known.catalog.server, tools=tools))

    def _restored(self, server: ToolServer) -> CatalogEntry:
        """What was known of the server before the broker was started anew, as if it had not answered since."""
        found = self.copies.get(server)
        if found is None or server.spec is None:
            return CatalogEntry()
        copy, listed_at = found
        entry = restore_entry(copy, listed_at, server=server, spec=server.spec)
        if entry.known is not None:
            entry.known = self._with_inferred(entry.known, server.key)
        return entry

    def _drop_personal(self, key: ObjectKey) -> None:
        for place in [place for place in self._personal if place[0] == key]:
            del self._personal[place]


def _identity(session: UpstreamSession) -> str:
    info = session.client.server_info if not session.ended else None
    return redact_excerpt(f"{info.name} {info.version}", session.secrets, most=200) if info is not None else ""
