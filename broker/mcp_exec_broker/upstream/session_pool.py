"""Connections to MCP servers: one for each server, or for each of its users where they differ; shared by all calls.

A connection that is lost takes the calls in flight with it, and no other: the next call makes a new one. While a
server can't be reached, calls fail at once, and are let try again after a while that grows.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

import aiohttp

from mcp_exec_broker.metrics import Metrics
from mcp_exec_broker.upstream.credentials import (
    CredentialsMissing,
    SecretCache,
    list_secret_names,
    read_credentials,
    read_environment_secrets,
)
from mcp_exec_broker.upstream.errors import ServerUnavailable
from mcp_exec_broker.upstream.oauth import ClientCredentialsTokens
from mcp_exec_broker.upstream.redaction import redact_text
from mcp_exec_broker.upstream.servers import ToolServer
from mcp_exec_broker.upstream.session import UpstreamRoute, UpstreamSession
from mcp_exec_common.kube.reflector import ObjectKey

log = logging.getLogger(__name__)

_FIRST_BACKOFF: Final = 0.25
_LAST_BACKOFF: Final = 15.0
_STEADY_SECONDS: Final = 5.0
"""How long a session lasts that is no failure."""
_SHARED: Final = ""
_KEPT_ENVIRONMENTS: Final = 4

Principal = tuple[ObjectKey, str]
"""A server, and a user or an empty text where all share one connection."""


@dataclass(kw_only=True, eq=False)
class _Place:
    """Where a principal's session is, or is made."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    session: UpstreamSession | None = None
    connecting: asyncio.Task[UpstreamSession] | None = None
    """The newest attempt to make one. It goes on without the call that began it, whose time may be too short."""
    failures: int = 0
    """Attempts that failed, one after another."""
    early_ends: int = 0
    """Sessions that ended at once, one after another."""
    retry_at: float = 0.0
    why: ServerUnavailable | None = None
    connected_at: float = 0.0
    environments: deque[frozenset[str]] = field(default_factory=lambda: deque(maxlen=_KEPT_ENVIRONMENTS), repr=False)
    """What Secrets gave a stdio server: a pod that began before a change still has what was there then."""

    def failed(self, why: ServerUnavailable) -> None:
        """No session came up: nothing is tried for a while, which grows."""
        self.failures += 1
        self._pause(self.failures, why)

    def ended_early(self, why: ServerUnavailable) -> None:
        """One came up and ended: the same, but no attempt that failed before it counts."""
        self.early_ends += 1
        self._pause(self.early_ends, why)

    def _pause(self, times: int, why: ServerUnavailable) -> None:
        self.retry_at = monotonic() + min(_FIRST_BACKOFF * 2 ** min(times - 1, 10), _LAST_BACKOFF)
        self.why = why


@dataclass(kw_only=True, eq=False)
class SessionPool:
    """All connections."""

    secrets: SecretCache
    tokens: ClientCredentialsTokens
    http: aiohttp.ClientSession
    bridge_key: bytes = field(repr=False)
    metrics: Metrics
    connect_timeout_seconds: float = 15.0
    idle_seconds: float = 300.0
    max_personal: int = 256
    on_tools_changed: Callable[[ObjectKey, str], None] = lambda key, user: None
    """Told by servers that say that their tools have changed."""
    on_lost: Callable[[ObjectKey, str], None] = lambda key, user: None
    """Told when a connection ended by itself."""
    _places: OrderedDict[Principal, _Place] = field(default_factory=OrderedDict)
    _connecting: set[asyncio.Task[UpstreamSession]] = field(default_factory=set)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    async def session(self, server: ToolServer, user: str | None) -> UpstreamSession:
        """The session for the server's calls on behalf of a user, or of nobody.

        Raises Unusable where there is none, and UserUnknown.
        """
        spec = server.spec
        if spec is None:
            raise ServerUnavailable("InvalidSpec", f"its spec can't be used: {server.wrong}")
        principal = (server.key, user if user is not None and server.is_personal else _SHARED)
        try:
            credentials = await read_credentials(
                self.secrets, spec, namespace=server.namespace, user=principal[1] or None
            )
        except CredentialsMissing as error:
            raise ServerUnavailable(error.reason, str(error)) from None
        place = self._places.setdefault(principal, _Place())
        self._places.move_to_end(principal)
        if (found := self._usable(place, server, credentials.version)) is not None:
            return found
        async with place.lock:
            if place.connecting is not None:
                await asyncio.wait({place.connecting})
            if (found := self._usable(place, server, credentials.version)) is not None:
                return found
            if place.session is not None:
                self._retire(place)
            elif place.why is not None and monotonic() < place.retry_at:
                # another one each time: an exception holds on to the calls that it was raised in
                raise ServerUnavailable(place.why.reason, str(place.why))
            return await self._begin(place, principal, UpstreamRoute(server=server, spec=spec, credentials=credentials))

    @staticmethod
    def _usable(place: _Place, server: ToolServer, version: str) -> UpstreamSession | None:
        session = place.session
        if session is None or session.ended or session.route.credentials.version != version:
            return None
        return session if session.route.server.is_like(server) else None

    async def _begin(self, place: _Place, principal: Principal, route: UpstreamRoute) -> UpstreamSession:
        task = asyncio.get_running_loop().create_task(self._connect(place, principal, route), name="a connection")
        place.connecting = task
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # where nobody waits for it any more
        return await asyncio.shield(task)

    async def _connect(self, place: _Place, principal: Principal, route: UpstreamRoute) -> UpstreamSession:
        key, user = principal
        known: frozenset[str] = route.credentials.known
        if route.spec.stdio is not None:
            try:
                known |= await self._environment(place, route)
            except CredentialsMissing as error:
                place.failed(why := ServerUnavailable(error.reason, str(error)))
                raise why from None
        session = UpstreamSession(
            route=replace(route, credentials=replace(route.credentials, known=known)),
            http=self.http,
            tokens=self.tokens,
            bridge_key=self.bridge_key,
            on_tools_changed=lambda: self.on_tools_changed(key, user),
            on_end=lambda ended: self._ended(place, principal, ended),
        )
        try:
            await session.open(timeout_seconds=self.connect_timeout_seconds)
        except ServerUnavailable as error:
            place.failed(why := ServerUnavailable(error.reason, redact_text(str(error), known)))
            self.metrics.connects.labels("failed").inc()
            raise why from None
        if self._places.get(principal) is not place:  # forgotten meanwhile: nobody would ever end it
            self._end(session)
            raise ServerUnavailable("Changed", "it has just changed")
        place.session, place.why, place.failures, place.connected_at = session, None, 0, monotonic()
        self.metrics.connects.labels("ok").inc()
        self._bound()
        return session

    async def _environment(self, place: _Place, route: UpstreamRoute) -> frozenset[str]:
        """What the server may have from Secrets. They are read anew: its pod may be younger than the copies."""
        self.reread(route.server)
        found = await read_environment_secrets(self.secrets, route.spec, namespace=route.server.namespace)
        if found not in place.environments:
            place.environments.append(found)
        return frozenset().union(*place.environments)

    def _ended(self, place: _Place, principal: Principal, session: UpstreamSession) -> None:
        if place.session is session:
            place.session = None
            if monotonic() - place.connected_at > _STEADY_SECONDS:
                place.early_ends = 0
            elif not session.was_closed:  # one that ends again and again is not asked without end
                place.ended_early(ServerUnavailable("ConnectionLost", session.why or "it ends each session at once"))
            if not session.was_closed:
                log.warning(
                    "a connection was lost",
                    extra={"namespace": principal[0][0], "server": principal[0][1], "why": session.why},
                )
                self.metrics.connects.labels("lost").inc()
                self.on_lost(*principal)

    def _retire(self, place: _Place) -> None:
        """No new call gets the session; it ends when those that it has are over."""
        session, place.session = place.session, None
        if session is not None:
            self._end(session)

    def _end(self, session: UpstreamSession, *, now: bool = False) -> None:
        task = asyncio.get_running_loop().create_task(session.close(now=now), name="end of a session")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _bound(self) -> None:
        """Ends personal sessions that nobody used for long, and the oldest where there are too many."""
        moment = monotonic()
        personal = [each for each in self._places.items() if each[0][1] != _SHARED]
        spare = len(personal) - self.max_personal
        for number, (principal, place) in enumerate(personal):
            idle = place.session is None or place.session.idle_since < moment - self.idle_seconds
            busy = place.lock.locked() or (place.session is not None and place.session.calls > 0)
            if not busy and (idle or number < spare):
                self._retire(place)
                self._places.pop(principal, None)

    def sweep(self) -> None:
        """Ends what is unused for too long; to be called now and then."""
        self._bound()
        self.metrics.connections.set(sum(place.session is not None for place in self._places.values()))

    def forget(self, key: ObjectKey) -> None:
        """The server is gone, or another one now: what it has in flight may end."""
        for principal in [each for each in self._places if each[0] == key]:
            self._retire(self._places.pop(principal))

    def retry(self, key: ObjectKey) -> None:
        """Something about the server changed for the better: the next call tries at once."""
        for principal, place in self._places.items():
            if principal[0] == key:
                place.retry_at = 0.0

    def reread(self, server: ToolServer) -> None:
        """The server does not take its credentials: there may be new ones."""
        if server.spec is not None:
            self.secrets.expire([(server.namespace, name) for name in list_secret_names(server.spec)])

    async def close(self) -> None:
        """Ends all of them at once."""
        for place in self._places.values():
            session, place.session = place.session, None
            if session is not None:
                self._end(session, now=True)
        self._places.clear()
        for task in self._connecting:
            task.cancel()
        if self._ending:
            await asyncio.wait(self._ending, timeout=5)
