"""ToolServer controller: each stdio server gets a NetworkPolicy, a Deployment, and its status.

A server is reconciled when it changes, every two seconds until it is ready, and at every resync; at most once a second,
and less and less often while the API server refuses. Servers are reconciled concurrently, each within a time limit, so
that requests that hang for one of them delay no other.
"""

import asyncio
import hashlib
import logging
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.constants import LABEL_TOOL_SERVER, TOOL_SERVERS
from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.tool_server import Stdio, Workload
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError, ApiUnreachable
from mcp_exec_common.kube.objects import Object, describe_release_secret, is_release_secret
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.tokens import bridge_token, token_digest
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.core.pods.network_policy import ReleasePods
from mcp_exec_operator.features.tools.manifests import (
    ANNOTATION_TOKEN,
    BridgeImage,
    CannotRunServer,
    ServerIdentity,
    build_deployment,
    build_failure,
    build_server_policy,
    build_workload,
    find_own_pods,
    manifest_digest,
    secret_names,
    secrets_digest,
    validate_stdio,
    workload_labels,
    workload_name,
)
from mcp_exec_operator.features.tools.network import ServerNetwork
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.settings import BundleSource

log = logging.getLogger(__name__)

_RESOURCES: Final = {
    "Deployment": ("deployments", "apps/v1"),
    "NetworkPolicy": ("networkpolicies", "networking.k8s.io/v1"),
}
"""Resource and API group of each kind that belongs to a ToolServer."""
_MAX_CONCURRENT: Final = 8
"""Servers of one namespace that are reconciled at the same time."""
_RECONCILE_SECONDS: Final = 30.0
"""Time limit of one reconcile."""
_REFUSED_STATUS_SECONDS: Final = 5.0
"""Time limit of writing the status after a reconcile has failed."""
_MIN_INTERVAL_SECONDS: Final = 1.0
"""Shortest time between two reconciles of a server."""
_STARTING_INTERVAL_SECONDS: Final = 2.0
"""Time between two reconciles of a server that is not ready."""


@dataclass(frozen=True, kw_only=True)
class ToolServerApi:
    """Typed access to ToolServers and what belongs to them. All methods raise ApiError."""

    kube: KubeClient
    metrics: Metrics
    release_secrets: frozenset[str] = frozenset()
    """Names of the release's own Secrets, which are never given to a server."""

    async def get_like(self, manifest: Object) -> Object | None:
        """Return the object with the manifest's kind and name, or None if it does not exist."""
        metadata = manifest["metadata"]
        return await self.kube.find(self._path(manifest["kind"], metadata["namespace"], metadata["name"]))

    async def create(self, manifest: Object) -> Object:
        """Create an object and return it as stored."""
        self._count()
        resource, group = _RESOURCES[manifest["kind"]]
        path = resource_path(resource, namespace=manifest["metadata"]["namespace"], group=group)
        return await self.kube.create(path, manifest)

    async def replace(self, stored: Object, manifest: Object) -> Object:
        """Replace a stored object by a manifest and return it."""
        self._count()
        metadata = manifest["metadata"] | {"resourceVersion": stored["metadata"]["resourceVersion"]}
        body = {**manifest, "metadata": metadata}
        return await self.kube.replace(self._path(manifest["kind"], metadata["namespace"], metadata["name"]), body)

    async def delete_owned(self, namespace: str, name: str, *, owner_uid: str) -> None:
        """Delete the objects of that name that the ToolServer with this uid owns; the policy after the last pod."""
        for kind in _RESOURCES:
            path = self._path(kind, namespace, name)
            stored = await self.kube.find(path)
            if stored is not None and is_owned(stored, owner_uid):
                self._count()
                await self.kube.delete(path, uid=stored["metadata"]["uid"], propagation="Foreground")

    async def list_pods(self, namespace: str, server: str) -> list[Object]:
        """Return the pods of a stdio server."""
        selector = ",".join(f"{name}={value}" for name, value in workload_labels(server).items())
        return (await self.kube.list(resource_path("pods", namespace=namespace), selector=selector))[0]

    async def set_token(self, pod: Object, token_sha256: str) -> None:
        """Let the bridge in a pod accept the token with this digest, and no other one. The pod may be gone."""
        self._count()
        meta = pod["metadata"]
        path = resource_path("pods", namespace=meta["namespace"], name=meta["name"])
        patch = {"metadata": {"uid": meta["uid"], "annotations": {ANNOTATION_TOKEN: token_sha256}}}
        try:
            await self.kube.patch(path, patch)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def get_secret_version(self, namespace: str, name: str) -> str:
        """Return a text that differs for each version of a Secret; empty if the Secret does not exist.

        Raises CannotRunServer if the Secret holds keys of a release.
        """
        secret = await self.kube.find(resource_path("secrets", namespace=namespace, name=name))
        if secret is not None and is_release_secret(secret, self.release_secrets):
            raise CannotRunServer(ServerReason.SECRET_OF_RELEASE, describe_release_secret(name))
        return f"{secret['metadata']['uid']} {secret['metadata']['resourceVersion']}" if secret is not None else ""

    async def get_bundle_version(self, namespace: str, source: BundleSource) -> str:
        """Return a text that differs for each content of a bundle; empty if it cannot be found or read.

        The pod itself reports that its bundle is missing.
        """
        resource = {"ConfigMap": "configmaps", "Secret": "secrets"}[source.kind]
        try:
            found = await self.kube.find(resource_path(resource, namespace=namespace, name=source.name))
        except ApiError as error:
            if error.code != 403:  # the roles of a namespace may be older than the value
                raise
            return ""
        content = ((found or {}).get("data") or {}).get(source.key, "")
        return hashlib.sha256(str(content).encode(errors="replace")).hexdigest() if content else ""

    async def patch_status(self, body: Object, status: Object) -> Object | None:
        """Merge fields into a ToolServer's status and return the stored object; None if it was deleted."""
        self._count("tool-server-status")
        meta = body["metadata"]
        path = custom_resource_path(TOOL_SERVERS, namespace=meta["namespace"], name=meta["name"]) + "/status"
        try:
            return await self.kube.patch(path, {"status": status})
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    @staticmethod
    def _path(kind: str, namespace: str, name: str) -> str:
        resource, group = _RESOURCES[kind]
        return resource_path(resource, namespace=namespace, name=name, group=group)

    def _count(self, what: str = "tool-server") -> None:
        self.metrics.writes.labels(what).inc()


def is_owned(item: Object, owner_uid: str) -> bool:
    """Return whether an object has an owner with this uid."""
    return any(owner.get("uid") == owner_uid for owner in item["metadata"].get("ownerReferences") or ())


@dataclass(kw_only=True, eq=False)
class _ServerState:
    """The last seen object of one ToolServer, and when it is reconciled next. Times are monotonic."""

    body: Object
    applied: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By kind, the digest of the manifest that was written last and the version that it became."""
    due_at: float = 0.0
    started_at: float = float("-inf")
    backoff: Backoff = field(default_factory=Backoff)

    @property
    def next_at(self) -> float:
        return max(self.due_at, self.started_at + _MIN_INTERVAL_SECONDS, self.backoff.until)


@dataclass(kw_only=True, eq=False)
class ToolServerController:
    """Reconciles the ToolServers of the served namespaces."""

    api: ToolServerApi
    keys: SandboxKeys
    """The bridges' tokens are derived from the signing one."""
    release: ReleasePods
    bridge: BridgeImage | None
    """The image with the bridge; None if stdio servers can't be run."""
    resync_seconds: float
    assign_users: bool = True
    """Whether the servers' pods have a fixed user, or that which the cluster assigns."""
    network: ServerNetwork = field(default_factory=ServerNetwork)
    reconcile_seconds: float = _RECONCILE_SECONDS
    _servers: dict[ObjectKey, _ServerState] = field(default_factory=dict)
    _reconciling: set[ObjectKey] = field(default_factory=set)
    _slots: dict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(_MAX_CONCURRENT))
    )
    """By namespace: a namespace whose requests hang delays no other."""
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def observe(self, body: Object, *, deleted: bool) -> None:
        """Record a ToolServer as seen by a watch. Owner references delete what belongs to a deleted one."""
        key = object_key(body)
        if deleted:
            self._servers.pop(key, None)
            return
        state = self._servers.get(key)
        if state is None:
            self._servers[key] = state = _ServerState(body=body)
        elif any(state.body["metadata"].get(name) != body["metadata"].get(name) for name in ("uid", "generation")):
            state.due_at = 0.0
        state.body = body
        self.changed()

    def observe_pod(self, pod: Object) -> None:
        """Reconcile the server whose labels a new, changed or deleted pod has: calls go to the address of its pod."""
        namespace, label = pod["metadata"]["namespace"], (pod["metadata"].get("labels") or {}).get(LABEL_TOOL_SERVER)
        for key, state in self._servers.items():
            if key[0] == namespace and workload_labels(key[1])[LABEL_TOOL_SERVER] == label:
                state.due_at = 0.0
                self.changed()

    def observe_policy(self, policy: Object, *, deleted: bool) -> None:
        """Reconcile the server whose NetworkPolicy is deleted, or is not as it was written."""
        namespace, name = object_key(policy)
        for key, state in self._servers.items():
            if key[0] == namespace and workload_name(key[1]) == name:
                _, version = state.applied.get("NetworkPolicy", ("", ""))
                if deleted or version != _version_of(policy):
                    state.due_at = 0.0
                    self.changed()

    def changed(self) -> None:
        """Reconcile the servers that are due."""
        self._wakeup.set()

    async def run(self) -> None:
        """Reconcile each server when it is due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wakeup.clear()
                now, next_at = monotonic(), monotonic() + self.resync_seconds
                for key, state in self._servers.items():
                    if key in self._reconciling:
                        continue
                    if state.next_at <= now:
                        self._reconciling.add(key)
                        group.create_task(self._take_slot(key, state), name=f"tool server {key[1]}")
                    else:
                        next_at = min(next_at, state.next_at)
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.01, next_at - monotonic())):
                        await self._wakeup.wait()

    async def _take_slot(self, key: ObjectKey, state: _ServerState) -> None:
        try:
            async with self._slots[key[0]]:
                await self._reconcile(key, state)
        finally:
            self._reconciling.discard(key)
            self.changed()

    async def _reconcile(self, key: ObjectKey, state: _ServerState) -> None:
        """Apply a server's spec and write its status. Errors are logged and delay the next reconcile."""
        state.started_at = monotonic()
        state.due_at = state.started_at + self.resync_seconds
        try:
            try:
                async with asyncio.timeout(self.reconcile_seconds):
                    workload = await self._apply_spec(state)
                    await self._write_status(state, workload)
            except TimeoutError as error:
                message = f"requests to the API server took longer than {self.reconcile_seconds:g} s"
                raise ApiUnreachable(message) from error
        except ApiError as error:
            state.backoff.fail(monotonic())
            log.warning("tool server %s was not reconciled: %s", key[1], error, extra={"namespace": key[0]})
            workload = build_failure(ServerReason.REFUSED, error.message)
            with suppress(ApiError, TimeoutError):
                async with asyncio.timeout(_REFUSED_STATUS_SECONDS):
                    await self._write_status(state, workload)
        except Exception:
            state.backoff.fail(monotonic())
            log.exception("tool server %s was not reconciled", key[1], extra={"namespace": key[0]})
        else:
            state.backoff.succeed()
            if workload is not None and not workload.ready:
                state.due_at = min(state.due_at, monotonic() + _STARTING_INTERVAL_SECONDS)

    async def _apply_spec(self, state: _ServerState) -> Workload | None:
        """Return the workload's status after applying the spec; None if the server has no workload."""
        body = state.body
        meta = body["metadata"]
        server = ServerIdentity(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])
        try:
            stdio = validate_stdio(body, has_bridge=self.bridge is not None)
            if stdio is not None:
                return await self._apply_stdio(state, server, stdio)
        except CannotRunServer as error:
            return error.workload
        if (body.get("status") or {}).get("workload") is not None:
            await self.api.delete_owned(server.namespace, workload_name(server.name), owner_uid=server.uid)
        state.applied.clear()
        return None

    async def _apply_stdio(self, state: _ServerState, server: ServerIdentity, stdio: Stdio) -> Workload:
        """Write what a stdio server needs and return its status. Raises CannotRunServer."""
        assert self.bridge is not None  # noqa: S101 - checked by validate_stdio
        versions = {
            secret: await self.api.get_secret_version(server.namespace, secret)
            for secret in (*secret_names(stdio), *self.network.list_secrets())
        }
        if (bundle := self.network.bundle) is not None:
            versions[f"{bundle.kind}/{bundle.name}"] = await self.api.get_bundle_version(server.namespace, bundle)
        policy = build_server_policy(server=server, stdio=stdio, release=self.release)
        # the policy first: a pod must not run without it
        policy = await self._apply_manifest(state, policy)
        deployment = build_deployment(
            server=server,
            stdio=stdio,
            bridge=self.bridge,
            network=self.network,
            assign_user=self.assign_users,
            secrets=secrets_digest(versions),
            policy_uid=policy["metadata"]["uid"],
        )
        deployment = await self._apply_manifest(state, deployment)
        pods = await self.api.list_pods(server.namespace, server.name)
        for pod in find_own_pods(deployment, pods):
            digest = self._token_digest(server, pod)
            if (pod["metadata"].get("annotations") or {}).get(ANNOTATION_TOKEN) != digest:
                await self.api.set_token(pod, digest)
        return build_workload(deployment, pods)

    def _token_digest(self, server: ServerIdentity, pod: Object) -> str:
        uid = pod["metadata"]["uid"]
        token = bridge_token(key=self.keys.signing, namespace=server.namespace, name=server.name, pod=uid)
        return token_digest(token)

    async def _apply_manifest(self, state: _ServerState, manifest: Object) -> Object:
        """Return the stored object after making it equal to the manifest. Raises CannotRunServer if it is not owned.

        Changes made by others are undone. An object written by a former leader is written once more: the API server
        stores no new version if nothing changes.
        """
        kind, digest = manifest["kind"], manifest_digest(manifest)
        stored = await self.api.get_like(manifest)
        if stored is None:
            stored = await self.api.create(manifest)
        elif not is_owned(stored, state.body["metadata"]["uid"]):
            name = manifest["metadata"]["name"]
            raise CannotRunServer(
                ServerReason.NAME_TAKEN, f"{kind} {name} exists and does not belong to this ToolServer"
            )
        elif state.applied.get(kind) == (digest, _version_of(stored)):
            return stored
        else:
            stored = await self.api.replace(stored, manifest)
        state.applied[kind] = digest, _version_of(stored)
        return stored

    async def _write_status(self, state: _ServerState, workload: Workload | None) -> None:
        """Write `status.workload` if it differs from the last seen object's."""
        wanted = workload.model_dump(by_alias=True, mode="json") if workload is not None else None
        stored = (state.body.get("status") or {}).get("workload")
        if wanted is None:
            if stored is None:
                return
        elif stored is not None and {name: stored.get(name) for name in wanted} == wanted:
            return
        # unset fields are null, which makes the merge remove them
        body = await self.api.patch_status(state.body, {"workload": wanted})
        if body is not None:
            state.body = body


def _version_of(stored: Object) -> str:
    """Return a text that changes with an object's spec."""
    metadata = stored["metadata"]
    return str(metadata.get("generation") or metadata["resourceVersion"])
