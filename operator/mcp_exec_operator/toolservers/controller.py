"""Runs the stdio servers: each ToolServer of that kind gets a Deployment, a Service, a NetworkPolicy, and its status.

A server is looked at when it changes, every two seconds until it is ready, and at each sweep; never more often than
once a second, and with a growing delay while the API server refuses.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.constants import BRIDGE_PORT
from mcp_exec_api.meta import field_errors
from mcp_exec_api.quantity import parse_quantity
from mcp_exec_api.tool_server import Stdio, ToolServerSpec, Workload
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_common.supervisor.tokens import bridge_token, token_digest
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.toolservers.api import ToolObjects
from mcp_exec_operator.toolservers.manifests import (
    BridgeImage,
    ServerIdentity,
    build_deployment,
    build_server_policy,
    build_service,
    digest_of,
    reserved_variables,
    secret_names,
    secrets_digest,
    workload_name,
)
from mcp_exec_operator.toolservers.workload import workload_of

log = logging.getLogger(__name__)

_AT_ONCE: Final = 4
_LEAST_SECONDS: Final = 1.0
"""Between two looks at a server, whatever happens."""
_STARTING_SECONDS: Final = 2.0
"""Between looks at one that is not ready."""


class Unfit(Exception):
    """The server can't be run as it is written."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.workload = Workload(ready=False, reason=reason, message=message)


@dataclass(kw_only=True, eq=False)
class _Watched:
    """What is known of one ToolServer."""

    body: Object
    made: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By kind, the digest of what was asked for, and the version of what stood then."""
    due: float = 0.0
    looked_at: float = float("-inf")
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(kw_only=True, eq=False)
class ToolServers:
    """All ToolServers of the served namespaces."""

    objects: ToolObjects
    key: bytes
    """What tokens are made of."""
    release_namespace: str
    bridge: BridgeImage | None
    """Where the bridge comes from; None where no stdio server can be run."""
    sweep_seconds: float
    on_change: Callable[[str], None] = lambda namespace: None
    """Told of a namespace whose tools may have changed."""
    _servers: dict[ObjectKey, _Watched] = field(default_factory=dict)
    _kicked: asyncio.Event = field(default_factory=asyncio.Event)

    def has_servers(self, namespace: str) -> bool:
        """Whether the namespace has any."""
        return any(key[0] == namespace for key in self._servers)

    def observe(self, body: Object, deleted: bool) -> None:
        """A watch tells of a ToolServer. What belongs to one that is gone is collected by its owner reference."""
        key = object_key(body)
        known = self._servers.get(key)
        if deleted:
            if self._servers.pop(key, None) is not None:
                self.on_change(key[0])
            return
        if known is None or _tools_of(known.body) != _tools_of(body):
            self.on_change(key[0])
        if known is None:
            self._servers[key] = known = _Watched(body=body)
        elif any(known.body["metadata"].get(name) != body["metadata"].get(name) for name in ("uid", "generation")):
            known.due = 0.0
        known.body = body
        self._kicked.set()

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            self._kicked.clear()
            at = monotonic()
            due = [key for key, each in self._servers.items() if self._next(each) <= at]
            for start in range(0, len(due), _AT_ONCE):
                await asyncio.gather(*map(self._look, due[start : start + _AT_ONCE]))
            soonest = min((self._next(each) for each in self._servers.values()), default=at + self.sweep_seconds)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, soonest - monotonic())):
                    await self._kicked.wait()

    @staticmethod
    def _next(watched: _Watched) -> float:
        return max(watched.due, watched.looked_at + _LEAST_SECONDS, watched.backoff.until)

    async def _look(self, key: ObjectKey) -> None:
        """Brings one server to what its spec says, and its status to what is."""
        if (watched := self._servers.get(key)) is None:
            return
        watched.looked_at, watched.due = monotonic(), monotonic() + self.sweep_seconds
        try:
            workload = await self._settle(watched)
            await self._report(watched, workload)
            if workload is not None and not workload.ready:
                watched.due = monotonic() + min(_STARTING_SECONDS, self.sweep_seconds)
            watched.backoff.succeed()
        except ApiError as error:
            watched.backoff.fail(monotonic())
            log.warning("tool server %s can't be kept: %s", key[1], error, extra={"namespace": key[0]})
            with suppress(ApiError):
                await self._report(watched, Workload(ready=False, reason="Refused", message=error.message[:1024]))
        except Exception:
            watched.backoff.fail(monotonic())
            log.exception("tool server %s can't be kept", key[1], extra={"namespace": key[0]})

    async def _settle(self, watched: _Watched) -> Workload | None:
        """How its pod is, once all is as its spec says; None where it has none. Raises ApiError."""
        body = watched.body
        meta = body["metadata"]
        server = ServerIdentity(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])
        try:
            stdio = self._stdio_of(body)
        except Unfit as unfit:
            return unfit.workload
        if stdio is None:
            if (body.get("status") or {}).get("workload") is not None:
                await self.objects.remove(server.namespace, workload_name(server.name), owner=server.uid)
            watched.made.clear()
            return None
        return await self._apply(watched, server, stdio)

    async def _apply(self, watched: _Watched, server: ServerIdentity, stdio: Stdio) -> Workload:
        assert self.bridge is not None  # noqa: S101 - _stdio_of has refused it
        objects = self.objects
        token = bridge_token(key=self.key, namespace=server.namespace, name=server.name)
        versions = {each: await objects.secret_version(server.namespace, each) for each in secret_names(stdio)}
        # first the wall, then what stands behind it
        policy = build_server_policy(server=server, stdio=stdio, release_namespace=self.release_namespace)
        service = build_service(server=server)
        deployment = build_deployment(
            server=server,
            stdio=stdio,
            bridge=self.bridge,
            token_sha256=token_digest(token),
            secrets=secrets_digest(versions),
        )
        try:
            await self._put(watched, policy)
            address = (await self._put(watched, service))["spec"].get("clusterIP")
            stored = await self._put(watched, deployment)
        except Unfit as unfit:
            return unfit.workload
        at = f"[{address}]:{BRIDGE_PORT}" if address and ":" in address else f"{address}:{BRIDGE_PORT}"
        pods = await objects.pods(server.namespace, server.name)
        return workload_of(stored, pods, address=at if address else None)

    async def _put(self, watched: _Watched, wanted: Object) -> Object:
        """The object as stored, which is as wanted. Raises Unfit where its name is taken.

        What somebody changed is put right, and what an operator before this one made is written once more: a write that
        changes nothing is none for the API server.
        """
        kind, digest = wanted["kind"], digest_of(wanted)
        found = await self.objects.find(wanted)
        if found is None:
            stored = await self.objects.create(wanted)
        elif not _is_owned(found, watched.body):
            raise Unfit("NameTaken", f"{kind} {wanted['metadata']['name']} is there and belongs to something else")
        elif watched.made.get(kind) == (digest, _version_of(found)):
            return found
        else:
            stored = await self.objects.replace(found, wanted)
        watched.made[kind] = digest, _version_of(stored)
        return stored

    def _stdio_of(self, body: Object) -> Stdio | None:
        """What is to be run, if anything. Raises Unfit."""
        try:
            spec = ToolServerSpec.model_validate(body.get("spec") or {})
        except ValidationError as error:
            text = "; ".join(f"spec.{found.field}: {found.message}" for found in field_errors(error))
            raise Unfit("InvalidSpec", text[:1024]) from error
        if spec.stdio is None:
            return None
        if self.bridge is None:
            raise Unfit("NoServersImage", "the operator knows no image with the bridge (MCP_EXEC_SERVERS_IMAGE)")
        try:
            parse_quantity(spec.stdio.data_size or "0")
        except ValueError as error:
            raise Unfit("InvalidSpec", f"spec.stdio.dataSize: {error}") from error
        if reserved := reserved_variables(spec.stdio):
            raise Unfit("InvalidSpec", f"spec.stdio.env: {', '.join(reserved)}: MCP_EXEC_ is kept for the bridge")
        return spec.stdio

    async def _report(self, watched: _Watched, workload: Workload | None) -> None:
        said = workload.model_dump(by_alias=True, mode="json") if workload is not None else None
        known = (watched.body.get("status") or {}).get("workload")
        if said is None:
            if known is None:
                return
        elif known is not None and {name: known.get(name) for name in said} == said:
            return
        # what is not set is null, by which a merge takes it away
        stored = await self.objects.patch_status(watched.body, {"workload": said})
        if stored is not None:
            watched.body = stored


def _tools_of(body: Object) -> object:
    """What of a ToolServer decides on its wrappers."""
    status = body.get("status") or {}
    return body["metadata"].get("generation"), status.get("catalogHash"), status.get("available")


def _is_owned(found: Object, server: Object) -> bool:
    uid = server["metadata"]["uid"]
    return any(each.get("uid") == uid for each in found["metadata"].get("ownerReferences") or ())


def _version_of(found: Object) -> str:
    """What changes with an object's spec, and as far as can be with nothing else: Services have no generation."""
    metadata = found["metadata"]
    return str(metadata.get("generation") or metadata["resourceVersion"])
