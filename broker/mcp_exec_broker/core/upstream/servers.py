"""ToolServer objects in the namespaces of this broker, and the transports that lead to their servers."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client
from pydantic import ValidationError

from mcp_exec_api.meta import explain_errors
from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.tool_server import ToolServerSpec, Workload
from mcp_exec_broker.core.memory import BytesInFlight
from mcp_exec_broker.core.upstream.credentials import ClientCredentialsTokens, UpstreamCredentials
from mcp_exec_broker.core.upstream.errors import ServerUnavailable
from mcp_exec_broker.core.upstream.http_transport import AiohttpTransport
from mcp_exec_broker.core.upstream.stdio_transport import connect_bridge
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_common.process.outgoing_client import OutgoingClient
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.tokens import bridge_token
from mcp_exec_tools.names import identifier

_CONNECTION_FIELDS: Final[dict[str, Any]] = {
    "url": True,
    "headers": True,
    "user_headers": True,
    "oauth": True,
    "tls": True,
    "stdio": {"image", "command", "env"},
}
"""Fields of the spec that determine the server's address and credentials."""
_SLACK_BYTES: Final = 64 * 1024
"""Bytes of an answer in addition to its result."""


@dataclass(frozen=True, kw_only=True)
class ToolServer:
    """One ToolServer as last observed."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: ToolServerSpec | None
    """None if it is invalid."""
    invalid_spec: str = ""
    """Errors of an invalid spec."""
    workload: Workload | None = None
    """State of a stdio server's pod."""
    status: Object = field(default_factory=dict, compare=False, repr=False)
    """Status as stored."""

    @classmethod
    def from_object(cls, item: Object) -> "ToolServer":
        """Parse the API object."""
        meta, status = item["metadata"], item.get("status") or {}
        spec, invalid_spec, workload = None, "", None
        try:
            spec = ToolServerSpec.model_validate(item.get("spec") or {})
            workload = Workload.model_validate(status["workload"]) if status.get("workload") else None
        except ValidationError as error:
            invalid_spec = explain_errors(error, ToolServerSpec)[:1000]
        return cls(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=str(meta.get("uid", "")),
            generation=int(meta.get("generation", 1)),
            spec=spec,
            invalid_spec=invalid_spec,
            workload=workload,
            status=status,
        )

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def is_personal(self) -> bool:
        """Whether each user has their own credentials and session."""
        return self.spec is not None and bool(self.spec.user_headers)

    @cached_property
    def connection_hash(self) -> str:
        """Hash of the object's identity and of the connection fields in its spec: 32 hexadecimal digits.

        It covers the names of Secrets but not their contents, and no policies.
        """
        spec = self.spec.model_dump(mode="json", include=_CONNECTION_FIELDS, exclude_none=True) if self.spec else None
        text = json.dumps([self.namespace, self.name, self.uid, spec], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def has_same_connection(self, other: "ToolServer") -> bool:
        """Return whether generation and workload, which determine sessions, are the same."""
        return (self.uid, self.generation, self.workload) == (other.uid, other.generation, other.workload)


@dataclass(kw_only=True, eq=False)
class ToolServerCache:
    """All ToolServers of the namespaces."""

    _servers: dict[ObjectKey, ToolServer] = field(default_factory=dict)
    _spellings: dict[ObjectKey, ObjectKey] = field(default_factory=dict)
    """Keys by namespace and Python identifier."""

    def observe(self, item: Object, deleted: bool) -> tuple[ToolServer | None, ToolServer | None]:
        """Apply a changed or deleted object, and return the ToolServer before and after."""
        key = object_key(item)
        before = self._servers.pop(key, None)
        after = None if deleted else ToolServer.from_object(item)
        if after is not None:
            self._servers[key] = after
        spelling = (key[0], identifier(key[1]))
        if deleted and self._spellings.get(spelling) == key:
            del self._spellings[spelling]
        elif not deleted:
            self._spellings.setdefault(spelling, key)
        return before, after

    def find(self, namespace: str, name: str) -> ToolServer | None:
        """Return the server of this name or Python identifier."""
        server = self._servers.get((namespace, name))
        return server or self._servers.get(self._spellings.get((namespace, name), ("", "")))

    def list_servers(self, namespace: str) -> list[ToolServer]:
        """Return the servers of a namespace by name."""
        return sorted((server for server in self if server.namespace == namespace), key=lambda server: server.name)

    def __iter__(self) -> Iterator[ToolServer]:
        return iter(list(self._servers.values()))


@dataclass(frozen=True, kw_only=True)
class UpstreamRoute:
    """Destination and credentials of a session."""

    server: ToolServer
    spec: ToolServerSpec
    credentials: UpstreamCredentials


@dataclass(frozen=True, kw_only=True)
class TransportFactory:
    """Opens transports, over HTTP or over the stdio bridge."""

    client: OutgoingClient
    oauth_tokens: ClientCredentialsTokens
    flight: BytesInFlight
    """Memory of what servers send."""
    bridge_keys: SandboxKeys

    async def open_transport(
        self,
        route: UpstreamRoute,
        stack: AsyncExitStack,
        *,
        on_secret: Callable[[str], None],
        on_end: Callable[[ServerUnavailable], None],
    ) -> AbstractAsyncContextManager[Any]:
        """Return a transport for the SDK's client.

        `on_secret` receives each access token before its use; `on_end` the cause if a bridged server ends the
        connection. Raises ServerUnavailable if the pod of a stdio server is not ready.
        """
        max_bytes = 2 * route.spec.limits.result_bytes + _SLACK_BYTES
        if route.spec.stdio is not None:
            return self._connect_bridge(route.server, max_bytes=max_bytes, on_end=on_end)
        transport = AiohttpTransport(
            client=self.client,
            oauth_tokens=self.oauth_tokens,
            credentials=route.credentials,
            max_bytes=max_bytes,
            on_secret=on_secret,
        )
        client = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, trust_env=False, timeout=None))
        return streamable_http_client(str(route.spec.url), http_client=client, max_sse_event_size=max_bytes)

    def _connect_bridge(
        self, server: ToolServer, *, max_bytes: int, on_end: Callable[[ServerUnavailable], None]
    ) -> AbstractAsyncContextManager[Any]:
        workload = server.workload
        if workload is None or not workload.ready or not workload.address or not workload.pod_uid:
            reason = (workload and workload.reason) or ServerReason.POD_NOT_READY
            raise ServerUnavailable(reason, (workload and workload.message) or "its pod is not ready")
        tokens = [
            bridge_token(key=key, namespace=server.namespace, name=server.name, pod=workload.pod_uid)
            for key in self.bridge_keys
        ]
        return connect_bridge(workload.address, tokens=tokens, max_line_bytes=max_bytes, on_end=on_end)
