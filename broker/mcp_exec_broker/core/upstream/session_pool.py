"""Sessions with MCP servers: one per server, or one per user if users have their own credentials; shared by all calls.

A lost connection ends its calls in progress only: the next call opens a new session. While a server is unreachable,
calls fail at once, and one is tried after a delay that grows.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_broker.core.upstream.authorities import BundleCache
from mcp_exec_broker.core.upstream.credentials import (
    CredentialsMissing,
    SecretCache,
    list_secret_names,
    read_credentials,
    read_environment_secrets,
    with_authorities,
)
from mcp_exec_broker.core.upstream.errors import ServerUnavailable, redact_excerpt
from mcp_exec_broker.core.upstream.servers import ToolServer, TransportFactory, UpstreamRoute
from mcp_exec_broker.core.upstream.session import UpstreamSession
from mcp_exec_broker.metrics import Metrics
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.util.backoff import Backoff

log = logging.getLogger(__name__)

_FIRST_BACKOFF: Final = 0.25
_LAST_BACKOFF: Final = 15.0
_STABLE_SECONDS: Final = 5.0
"""A session that lasts longer does not count as a failure when it is lost."""
_SHARED: Final = ""
_MAX_ENVIRONMENTS: Final = 4
_MAX_MESSAGE: Final = 1000

Principal = tuple[ObjectKey, str]
"""A server and a user, or an empty text if all users share one session."""


def _build_backoff() -> Backoff:
    return Backoff(first=_FIRST_BACKOFF, last=_LAST_BACKOFF)


@dataclass(kw_only=True, eq=False)
class _Slot:
    """The session of one principal, or the attempt to open one."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    session: UpstreamSession | None = None
    opening: asyncio.Task[UpstreamSession] | None = None
    """The latest attempt. It outlives the call that started it, whose time limit may be too short."""
    open_backoff: Backoff = field(default_factory=_build_backoff)
    """Delay after failed attempts."""
    loss_backoff: Backoff = field(default_factory=_build_backoff)
    """Delay after sessions that were lost at once."""
    retry_at: float = 0.0
    """No attempt before this time, on the monotonic clock."""
    failure: ServerUnavailable | None = None
    opened_at: float = 0.0
    environments: deque[frozenset[str]] = field(default_factory=lambda: deque(maxlen=_MAX_ENVIRONMENTS), repr=False)
    """Secrets in the environment of a stdio server, also earlier ones: an older pod still has those."""

    def delay_retry(self, backoff: Backoff, failure: ServerUnavailable) -> None:
        """Delay the next attempt by a back-off that counts this failure."""
        now = monotonic()
        backoff.until = 0.0  # each failure counts, even one that `retry` allowed during the delay
        backoff.fail(now)
        self.retry_at, self.failure = backoff.until, failure


@dataclass(kw_only=True, eq=False)
class SessionPool:
    """All sessions."""

    secrets: SecretCache
    bundles: BundleCache
    transports: TransportFactory
    metrics: Metrics
    on_stale_tools: Callable[[ObjectKey, str], None]
    """Called with server and user when their tools may have changed: the server reported it, or a session was lost."""
    connect_timeout_seconds: float = 15.0
    idle_seconds: float = 300.0
    max_personal: int = 256
    _slots: OrderedDict[Principal, _Slot] = field(default_factory=OrderedDict)
    _opening: set[asyncio.Task[UpstreamSession]] = field(default_factory=set)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def __len__(self) -> int:
        """Return the number of principals with a session, an attempt, or a delay."""
        return len(self._slots)

    async def get_session(self, server: ToolServer, user: str | None) -> UpstreamSession:
        """Return the session for calls on behalf of a user, or of nobody.

        Raises ServerUnavailable, and UserUnknown if the server needs credentials of the user and there are none.
        """
        spec = server.spec
        if spec is None:
            raise ServerUnavailable(ServerReason.INVALID_SPEC, f"its spec can't be used: {server.invalid_spec}")
        principal = (server.key, user if user is not None and server.is_personal else _SHARED)
        try:
            credentials = await read_credentials(
                self.secrets, spec, namespace=server.namespace, user=principal[1] or None
            )
            if spec.tls is not None:
                found = await self.bundles.get_authorities(server.namespace, spec.tls.ca_bundle_ref)
                credentials = with_authorities(credentials, found.context, version=found.version)
        except CredentialsMissing as error:
            raise ServerUnavailable(error.reason, str(error)) from None
        slot = self._slots.setdefault(principal, _Slot())
        self._slots.move_to_end(principal)
        if (session := self._find_usable(slot, server, credentials.version)) is not None:
            return session
        async with slot.lock:
            if slot.opening is not None:
                await asyncio.wait({slot.opening})
            if (session := self._find_usable(slot, server, credentials.version)) is not None:
                return session
            if slot.session is not None:
                self._retire(slot)
            elif slot.failure is not None and monotonic() < slot.retry_at:
                # a copy: a raised exception keeps references to the calls that it passed through
                raise ServerUnavailable(slot.failure.reason, str(slot.failure))
            route = UpstreamRoute(server=server, spec=spec, credentials=credentials)
            return await self._start_opening(slot, principal, route)

    @staticmethod
    def _find_usable(slot: _Slot, server: ToolServer, version: str) -> UpstreamSession | None:
        session = slot.session
        if session is None or session.has_ended or session.route.credentials.version != version:
            return None
        return session if session.route.server.has_same_connection(server) else None

    async def _start_opening(self, slot: _Slot, principal: Principal, route: UpstreamRoute) -> UpstreamSession:
        task = asyncio.get_running_loop().create_task(self._open(slot, principal, route), name="open session")
        slot.opening = task
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # if nobody waits for it any more
        return await asyncio.shield(task)

    async def _open(self, slot: _Slot, principal: Principal, route: UpstreamRoute) -> UpstreamSession:
        key, user = principal
        secrets: frozenset[str] = route.credentials.secrets
        if route.spec.stdio is not None:
            try:
                secrets |= await self._read_environment(slot, route)
            except CredentialsMissing as error:
                failure = ServerUnavailable(error.reason, str(error))
                slot.delay_retry(slot.open_backoff, failure)
                raise failure from None
        session = UpstreamSession(
            route=replace(route, credentials=replace(route.credentials, secrets=secrets)),
            transports=self.transports,
            on_tools_changed=lambda: self.on_stale_tools(key, user),
            on_end=lambda ended: self._handle_end(slot, principal, ended),
        )
        try:
            await session.open(timeout_seconds=self.connect_timeout_seconds)
        except ServerUnavailable as error:
            failure = ServerUnavailable(error.reason, redact_excerpt(str(error), secrets, max_chars=_MAX_MESSAGE))
            slot.delay_retry(slot.open_backoff, failure)
            self.metrics.connects.labels("failed").inc()
            raise failure from None
        if self._slots.get(principal) is not slot:  # removed during the attempt: nobody would close the session
            self._close_session(session)
            raise ServerUnavailable(ServerReason.CHANGED, "it has just changed")
        slot.session, slot.failure, slot.opened_at = session, None, monotonic()
        slot.open_backoff.succeed()
        self.metrics.connects.labels("ok").inc()
        self._close_unused()
        return session

    async def _read_environment(self, slot: _Slot, route: UpstreamRoute) -> frozenset[str]:
        """Read the Secrets that the server's environment may contain again: its pod may be newer than the cache."""
        self.expire_credentials(route.server)
        environment = await read_environment_secrets(self.secrets, route.spec, namespace=route.server.namespace)
        if environment not in slot.environments:
            slot.environments.append(environment)
        return frozenset().union(*slot.environments)

    def _handle_end(self, slot: _Slot, principal: Principal, session: UpstreamSession) -> None:
        if slot.session is not session:
            return
        slot.session = None
        if monotonic() - slot.opened_at > _STABLE_SECONDS:
            slot.loss_backoff.succeed()
        elif not session.was_closed:
            cause = session.end_cause or "it ends each session at once"
            reason = session.failure.reason if session.failure else ServerReason.CONNECTION_LOST
            slot.delay_retry(slot.loss_backoff, ServerUnavailable(reason, cause))
        if not session.was_closed:
            log.warning(
                "lost the connection to a server",
                extra={"namespace": principal[0][0], "server": principal[0][1], "why": session.end_cause},
            )
            self.metrics.connects.labels("lost").inc()
            self.on_stale_tools(*principal)

    def _retire(self, slot: _Slot) -> None:
        """Close the slot's session after its active requests; new calls get another one."""
        session, slot.session = slot.session, None
        if session is not None:
            self._close_session(session)

    def _close_session(self, session: UpstreamSession, *, now: bool = False) -> None:
        task = asyncio.get_running_loop().create_task(session.close(now=now), name="close session")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _close_unused(self) -> None:
        """Close personal sessions that were idle for long, and the least recently used ones above the maximum."""
        now = monotonic()
        personal = [(principal, slot) for principal, slot in self._slots.items() if principal[1] != _SHARED]
        excess = len(personal) - self.max_personal
        for number, (principal, slot) in enumerate(personal):
            is_idle = slot.session is None or slot.session.idle_since < now - self.idle_seconds
            is_busy = slot.lock.locked() or (slot.session is not None and slot.session.active_requests > 0)
            if not is_busy and (is_idle or number < excess):
                self._retire(slot)
                self._slots.pop(principal, None)

    def clean_up(self) -> None:
        """Close unused sessions and update the metric. Must be called regularly."""
        self._close_unused()
        self.metrics.connections.set(sum(slot.session is not None for slot in self._slots.values()))

    def remove(self, key: ObjectKey) -> None:
        """Close the sessions of a server that was deleted or replaced, after their active requests."""
        for principal in [principal for principal in self._slots if principal[0] == key]:
            self._retire(self._slots.pop(principal))

    def retry(self, key: ObjectKey) -> None:
        """End the delay of a server that changed: the next call tries at once."""
        for principal, slot in self._slots.items():
            if principal[0] == key:
                slot.retry_at = 0.0

    def expire_credentials(self, server: ToolServer) -> None:
        """Read the server's Secrets again at their next use, because it rejected its credentials."""
        if server.spec is not None:
            self.secrets.expire([(server.namespace, name) for name in list_secret_names(server.spec)])

    async def close(self) -> None:
        """Close all sessions at once."""
        for slot in self._slots.values():
            session, slot.session = slot.session, None
            if session is not None:
                self._close_session(session, now=True)
        self._slots.clear()
        for task in self._opening:
            task.cancel()
        if self._closing:
            await asyncio.wait(self._closing, timeout=5)
