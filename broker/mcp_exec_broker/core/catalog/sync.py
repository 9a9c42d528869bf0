"""Keeps catalogs in sync with their servers: lists at once, lists again in time, keeps tools of absent servers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from cachetools import LRUCache
from mcp import MCPError

from mcp_exec_api.meta import now
from mcp_exec_api.reasons.server import ServerReason, is_of_credentials
from mcp_exec_broker.core.catalog.entry import (
    CatalogDiskCache,
    CatalogEntry,
    OutputInference,
    ToolListing,
    add_inferred_output,
    build_copy,
    restore_entry,
)
from mcp_exec_broker.core.upstream.credentials import CredentialsMissing, UserUnknown
from mcp_exec_broker.core.upstream.errors import (
    ConnectionLost,
    ServerUnavailable,
    SessionError,
    SessionExpired,
    redact_excerpt,
    redact_json,
    redact_text,
)
from mcp_exec_broker.core.upstream.http_transport import parse_reason
from mcp_exec_broker.core.upstream.servers import ToolServer, ToolServerCache
from mcp_exec_broker.core.upstream.session import ListedTools, UpstreamSession
from mcp_exec_broker.core.upstream.session_pool import SessionPool
from mcp_exec_broker.metrics import Metrics
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_tools.catalog import Catalog

log = logging.getLogger(__name__)

_ROUND_SECONDS: Final = 0.5
"""Seconds between two rounds of status writes: changes in between are written together."""
MIN_LIFETIME: Final = 5.0
"""Seconds from one listing to the next, at least."""
_MAX_LIFETIME: Final = 86_400.0
_REFUSALS: Final = frozenset(
    {
        ServerReason.UNAUTHORIZED,
        ServerReason.PROTOCOL_ERROR,
        ServerReason.SERVER_ERROR,
        ServerReason.WRONG_PATH,
        ServerReason.REDIRECTED,
        ServerReason.NOT_MCP,
    }
)
"""Reasons of a server that refuses requests on behalf of nobody."""
_MIN_INTERVAL: Final = 0.25
"""Seconds between two listings of one server, which may report changes without end."""
_MAX_CONCURRENT: Final = 16
"""Listings at once."""
_MAX_PERSONAL_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all listings for single users in the cache, as JSON."""
_LISTING_BYTES: Final = 64 * 1024
"""Bytes that a listing counts at least: 1,024 listings of usual servers."""


class ChangedServers:
    """Set of servers with a changed catalog."""

    def __init__(self) -> None:
        self._keys: set[ObjectKey] = set()
        self._wakeup = asyncio.Event()

    def add(self, key: ObjectKey) -> None:
        """Add a server."""
        self._keys.add(key)
        self.changed()

    def changed(self) -> None:
        """Write soon."""
        self._wakeup.set()

    async def write_all(self, write: Callable[[ObjectKey], Awaitable[None]]) -> None:
        """Write each added server until it is cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            keys, self._keys = self._keys, set()
            await asyncio.gather(*(write(key) for key in keys))
            await asyncio.sleep(_ROUND_SECONDS)


@dataclass(kw_only=True, eq=False)
class ToolLister:
    """Lists tools through the sessions of the pool."""

    sessions: SessionPool
    inference: OutputInference
    timeout_seconds: float = 15.0

    async def list_shared(self, server: ToolServer) -> tuple[UpstreamSession, ToolListing]:
        """List the tools without a user, or as one of the server's users if it refuses that.

        Names and schemas are shared thereby; each call uses the credentials of its own user. Raises ServerUnavailable.
        """
        try:
            return await self.list_tools(server, None)
        except ServerUnavailable as error:
            user = await self._find_user(server) if error.reason in _REFUSALS else None
            if user is None:
                raise
            try:
                return await self.list_tools(server, user)
            except UserUnknown:
                raise error from None

    async def list_tools(self, server: ToolServer, user: str | None) -> tuple[UpstreamSession, ToolListing]:
        """List the tools on behalf of a user, or of nobody. Raises ServerUnavailable and UserUnknown."""
        session: UpstreamSession | None = None
        try:
            async with asyncio.timeout(self.timeout_seconds):
                session = await self.sessions.get_session(server, user)
                try:
                    tools = await session.list_tools()
                except (SessionExpired, ConnectionLost):
                    session = await self.sessions.get_session(server, user)
                    tools = await session.list_tools()
            return session, self._build_listing(server, session, tools, uses_user_credentials=user is not None)
        except TimeoutError:
            message = f"its tools were not listed within {self.timeout_seconds:g} s"
            raise ServerUnavailable(ServerReason.TIMEOUT, message) from None
        except MCPError as error:
            text = redact_excerpt(error.message, session.secrets if session else (), max_chars=500)
            reason = parse_reason(error.error.data) or ServerReason.PROTOCOL_ERROR
            raise ServerUnavailable(reason, f"tools/list: {text}") from None
        except (ValueError, OverflowError) as error:
            text = redact_excerpt(str(error), session.secrets if session else (), max_chars=500)
            raise ServerUnavailable(ServerReason.PROTOCOL_ERROR, f"tools/list: {text}") from None
        except (ServerUnavailable, UserUnknown):
            raise
        except SessionError as error:
            known = session.failure if session else None
            raise ServerUnavailable(known.reason if known else ServerReason.CONNECTION_LOST, str(error)) from None
        except Exception as error:  # an answer of one server must not end the listing of the others
            log.warning("tools/list failed", extra={"server": "/".join(server.key), "error": type(error).__name__})
            message = "tools/list: its answer can't be used; the broker's log has the kind of error"
            raise ServerUnavailable(ServerReason.PROTOCOL_ERROR, message) from None

    def add_inferred_outputs(self, listing: ToolListing, key: ObjectKey) -> ToolListing:
        """Return the listing with the inferred output schemas of a server."""
        schemas = self.inference.get_schemas(key)
        if not schemas:
            return listing
        tools = tuple(add_inferred_output(tool, schemas) for tool in listing.catalog.tools)
        return replace(listing, catalog=Catalog(server=listing.catalog.server, tools=tools))

    async def _find_user(self, server: ToolServer) -> str | None:
        spec = server.spec
        if spec is None or not spec.user_headers:
            return None
        users: set[str] | None = None
        for header in spec.user_headers:
            try:
                keys = set(await self.sessions.secrets.get_data(server.namespace, header.secret_name))
            except CredentialsMissing:
                return None
            users = keys if users is None else users & keys
        return min((user for user in users or () if not user.startswith("base64-")), default=None)

    def _build_listing(
        self, server: ToolServer, session: UpstreamSession, listed: ListedTools, *, uses_user_credentials: bool
    ) -> ToolListing:
        spec = session.route.spec
        visible = [tool for tool in redact_json(listed.tools, session.secrets) if spec.shows(tool["name"])]
        catalog = Catalog.from_tools(server.name, visible)
        lifetime = min(max(listed.ttl_seconds or spec.refresh_seconds, MIN_LIFETIME), _MAX_LIFETIME)
        listing = ToolListing(
            catalog=catalog,
            declared={tool.name: tool.output_schema for tool in catalog.tools},
            expires=monotonic() + lifetime,
            is_public=listed.is_public,
            uses_user_credentials=uses_user_credentials,
            size=listed.size,
            omitted=tuple(replace(entry, name=redact_text(entry.name, session.secrets)) for entry in listed.omitted),
            omitted_count=listed.omitted_count,
        )
        return self.add_inferred_outputs(listing, server.key)


def read_identity(session: UpstreamSession) -> str:
    """Return name and version that the server states, empty if the session has ended."""
    info = session.client.server_info if not session.has_ended else None
    return redact_excerpt(f"{info.name} {info.version}", session.secrets, max_chars=200) if info is not None else ""


def _measure(listing: ToolListing) -> int:
    return max(listing.size, _LISTING_BYTES)


@dataclass(kw_only=True, eq=False)
class CatalogSync:
    """The tools of all servers, with one task per server."""

    servers: ToolServerCache
    lister: ToolLister
    changes: ChangedServers
    metrics: Metrics
    disk_cache: CatalogDiskCache
    _entries: dict[ObjectKey, CatalogEntry] = field(default_factory=dict)
    _tasks: dict[ObjectKey, asyncio.Task[None]] = field(default_factory=dict)
    _personal: LRUCache[tuple[ObjectKey, str], ToolListing] = field(
        default_factory=lambda: LRUCache(_MAX_PERSONAL_BYTES, getsizeof=_measure)
    )
    _locks: dict[tuple[ObjectKey, str], asyncio.Lock] = field(default_factory=dict)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_CONCURRENT))

    def get_entry(self, key: ObjectKey) -> CatalogEntry:
        """Return the entry of a server, an empty one if there is none."""
        return self._entries.get(key) or CatalogEntry()

    def start(self, server: ToolServer) -> None:
        """Start the synchronization of a server, or list its tools now if its task runs."""
        if server.key in self._tasks:
            self.refresh(server.key)
            return
        self._entries[server.key] = self._restore_entry(server)
        task = asyncio.get_running_loop().create_task(self._sync(server.key), name=f"catalog {'/'.join(server.key)}")
        self._tasks[server.key] = task

    def remove(self, key: ObjectKey) -> None:
        """Stop the synchronization of a deleted server and drop its tools."""
        if (task := self._tasks.pop(key, None)) is not None:
            task.cancel()
        self._entries.pop(key, None)
        self._drop_personal(key)

    def refresh(self, key: ObjectKey, user: str = "") -> None:
        """List the tools now, or those of a user at their next call, because they may have changed."""
        if user:
            self._personal.pop((key, user), None)
        elif (entry := self._entries.get(key)) is not None:
            entry.backoff.succeed()
            entry.changed()
            self._drop_personal(key)

    def apply_inferred_outputs(self, key: ObjectKey) -> None:
        """Add newly inferred output schemas to the catalog of a server."""
        entry, server = self._entries.get(key), self.servers.find(*key)
        if entry is not None and entry.listing is not None and server is not None:
            entry.listing = self.lister.add_inferred_outputs(entry.listing, key)
        self.changes.add(key)

    async def get_listing(self, server: ToolServer, user: str | None) -> ToolListing:
        """Return the tools for a call on behalf of a user.

        Raises ServerUnavailable if they were never listed, and UserUnknown.
        """
        shared = self.get_entry(server.key).listing
        if not server.is_personal:
            return shared if shared is not None else await self._list_first(server)
        if user is None:
            raise UserUnknown("the execution has no user, and the server accepts calls on behalf of users only")
        if shared is not None and shared.is_public:
            return shared
        return await self._get_personal(server, user)

    async def close(self) -> None:
        """Stop all tasks."""
        tasks = list(self._tasks.values())
        for key in list(self._tasks):
            self.remove(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _list_first(self, server: ToolServer) -> ToolListing:
        """List the tools for a call that precedes the first listing."""
        async with self._locks.setdefault((server.key, ""), asyncio.Lock()):
            if (listing := self.get_entry(server.key).listing) is not None:
                return listing
            _, listing = await self.lister.list_tools(server, None)
            if (entry := self._entries.get(server.key)) is not None:
                entry.listing = listing
                entry.changed()
            return listing

    async def _get_personal(self, server: ToolServer, user: str) -> ToolListing:
        key = (server.key, user)
        cached = self._personal.get(key)
        if cached is not None and cached.expires > monotonic():
            return cached
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if (listing := self._personal.get(key)) is not None and listing.expires > monotonic():
                    return listing
                try:
                    _, listing = await self.lister.list_tools(server, user)
                except ServerUnavailable:
                    if cached is None:
                        raise
                    return cached
                self._personal[key] = listing
                return listing
        finally:
            if not lock.locked():
                self._locks.pop(key, None)

    async def _sync(self, key: ObjectKey) -> None:
        entry = self._entries[key]
        while True:
            entry.wakeup.clear()
            server = self.servers.find(*key)
            if server is None:
                return
            delay = await self._update(server, entry)
            self._publish(server, entry)
            await asyncio.sleep(_MIN_INTERVAL)
            try:
                async with asyncio.timeout(delay):
                    await entry.wakeup.wait()
            except TimeoutError:
                continue

    async def _update(self, server: ToolServer, entry: CatalogEntry) -> float:
        """List a server's tools, and return the seconds until the next listing."""
        entry.generation = server.generation
        try:
            async with self._slots:
                session, listing = await self.lister.list_shared(server)
        except ServerUnavailable as error:
            self.lister.sessions.expire_credentials(server)
            entry.available, entry.reason, entry.message = False, error.reason, str(error)
            entry.credentials_found = not is_of_credentials(error.reason)
            self.metrics.listings.labels("failed").inc()
            moment = monotonic()
            entry.backoff.until = 0.0  # each failure counts, even one after an early wakeup
            entry.backoff.fail(moment)
            return entry.backoff.until - moment
        entry.listing, entry.available, entry.reason, entry.message = listing, True, "", ""
        entry.credentials_found, entry.listed_at = True, now()
        entry.backoff.succeed()
        entry.protocol_version = session.client.protocol_version if not session.has_ended else entry.protocol_version
        entry.identity = read_identity(session) or entry.identity
        self.disk_cache.put(server, build_copy(entry))
        self.metrics.listings.labels("ok").inc()
        return max(listing.expires - monotonic(), MIN_LIFETIME)

    def _publish(self, server: ToolServer, entry: CatalogEntry) -> None:
        if entry.available and entry.listing is not None:
            undeclared = (name for name, schema in entry.listing.declared.items() if schema is None)
            self.lister.inference.retain(server.key, undeclared)
        self.changes.add(server.key)

    def _restore_entry(self, server: ToolServer) -> CatalogEntry:
        """Return the entry from the disk cache, as if the server had not answered since."""
        cached = self.disk_cache.get(server)
        if cached is None or server.spec is None:
            return CatalogEntry()
        copy, listed_at = cached
        entry = restore_entry(copy, listed_at, server=server, spec=server.spec)
        if entry.listing is not None:
            entry.listing = self.lister.add_inferred_outputs(entry.listing, server.key)
        return entry

    def _drop_personal(self, key: ObjectKey) -> None:
        for personal_key in [personal_key for personal_key in self._personal if personal_key[0] == key]:
            del self._personal[personal_key]
