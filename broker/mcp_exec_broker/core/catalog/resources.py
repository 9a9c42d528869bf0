"""ToolServers as resources: a change of one is applied to all that is kept of it, and its status is written."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_api.meta import Condition, ConditionStatus, micro_time, now, set_condition
from mcp_exec_broker.core.access.limiters import ServerConcurrency
from mcp_exec_broker.core.catalog.entry import CatalogEntry, OutputInference, Schemas
from mcp_exec_broker.core.catalog.sync import CatalogSync
from mcp_exec_broker.core.upstream.credentials import SecretCache, list_secret_names
from mcp_exec_broker.core.upstream.servers import ToolServer, ToolServerCache
from mcp_exec_broker.core.upstream.session_pool import SessionPool
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.kube.reflector import ObjectKey, Reflector

log = logging.getLogger(__name__)

_OWN_FIELDS: Final = (
    "observedGeneration",
    "available",
    "protocolVersion",
    "server",
    "tools",
    "omitted",
    "omittedTools",
    "catalogHash",
    "lastSync",
    "reason",
    "message",
    "inferredOutputs",
    "conditions",
)
_SYNC_FRACTION: Final = 0.5
"""Fraction of the refresh time until a new lastSync is a reason to write: other replicas list as well."""


def build_status(server: ToolServer, entry: CatalogEntry, schemas: Schemas, *, moment: datetime) -> Object:
    """Return the broker's fields of the status without empty ones, which typed fields would reject."""
    listing = entry.listing
    status: Object = {
        "observedGeneration": entry.generation,
        "available": entry.available is True,
        "protocolVersion": entry.protocol_version or None,
        "server": _replace_halves(entry.identity) or None,
        "tools": len(listing.catalog.tools) if listing else None,
        "omitted": (listing.omitted_count or None) if listing else None,
        "omittedTools": [asdict(tool) for tool in listing.omitted] or None if listing else None,
        "catalogHash": listing.catalog.hash if listing else None,
        "lastSync": micro_time(entry.listed_at) if entry.listed_at else None,
        "reason": entry.reason or None,
        "message": _describe(entry) or None,
        "inferredOutputs": schemas or None,
        "conditions": [drop_empty_fields(condition.to_api()) for condition in _build_conditions(server, entry, moment)],
    }
    return {name: value for name, value in status.items() if value is not None}


def build_patch(stored: Mapping[str, Any], new: Object, *, refresh_seconds: float) -> Object | None:
    """Return the merge patch from the stored status to the new one, or None if nothing relevant changed."""
    patch = {name: new.get(name) for name in _OWN_FIELDS if new.get(name) != stored.get(name)}
    if patch.keys() == {"lastSync"} and not _is_old(stored.get("lastSync"), new.get("lastSync"), refresh_seconds):
        return None
    old, schemas = stored.get("inferredOutputs"), patch.get("inferredOutputs")
    if isinstance(old, Mapping) and isinstance(schemas, Mapping):
        # a merge patch merges objects deeply, so removed parts of a schema must be set to null
        patch["inferredOutputs"] = _build_merge_patch(old, schemas)
    return patch or None


def _build_conditions(server: ToolServer, entry: CatalogEntry, moment: datetime) -> list[Condition]:
    conditions: list[Condition] = []
    for item in server.status.get("conditions") or []:
        try:
            conditions.append(Condition.model_validate(item))
        except ValidationError:
            continue
    available = Condition(
        type="Available",
        status=ConditionStatus.TRUE if entry.available else ConditionStatus.FALSE,
        reason="Listed" if entry.available else entry.reason or "Unknown",
        message=_describe(entry),
        last_transition_time=moment,
    )
    credentials_found = Condition(
        type="CredentialsFound",
        status=ConditionStatus.TRUE if entry.credentials_found else ConditionStatus.FALSE,
        reason="Found" if entry.credentials_found else entry.reason,
        message="" if entry.credentials_found else _describe(entry),
        last_transition_time=moment,
    )
    return set_condition(set_condition(conditions, available), credentials_found)


def _describe(entry: CatalogEntry) -> str:
    return _replace_halves(entry.message[:1000])


def _replace_halves(text: str) -> str:
    """Return a text without halves of surrogate pairs, which a server may send and no type accepts."""
    return text.encode(errors="replace").decode()


def _is_old(stored: object, new: object, refresh_seconds: float) -> bool:
    try:
        before, after = (datetime.fromisoformat(str(time)) for time in (stored, new))
    except ValueError:
        return True
    return (after - before).total_seconds() >= refresh_seconds * _SYNC_FRACTION


def _build_merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Object:
    patch: Object = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            patch[name] = _build_merge_patch(before, value)
        elif before != value:
            patch[name] = value
    return patch


@dataclass(frozen=True, kw_only=True)
class ToolServerStatusWriter:
    """Writer of the status of ToolServers."""

    kube: KubeClient
    servers: ToolServerCache
    catalogs: CatalogSync
    inference: OutputInference

    async def write(self, key: tuple[str, str]) -> None:
        """Write the status of one server if it changed. Errors are logged; the next change writes again."""
        server, entry = self.servers.find(*key), self.catalogs.get_entry(key)
        if server is None or entry.available is None:
            return
        refresh = server.spec.refresh_seconds if server.spec is not None else 300
        new = build_status(server, entry, self.inference.get_schemas(key), moment=now())
        patch = build_patch(server.status, new, refresh_seconds=refresh)
        if patch is None:
            return
        path = custom_resource_path(TOOL_SERVERS, namespace=server.namespace, name=server.name) + "/status"
        try:
            await self.kube.patch(path, {"status": patch})
        except ApiError as error:
            if error.code != 404:
                log.warning(
                    "cannot write the status of a ToolServer: %s", error, extra={"namespace": key[0], "server": key[1]}
                )


_KEPT_METADATA: Final = ("namespace", "name")


@dataclass(kw_only=True, eq=False)
class ToolServerTracker:
    """Watches ToolServers, and starts, updates and removes their catalogs, sessions, Secrets and limits."""

    kube: KubeClient
    servers: ToolServerCache
    catalogs: CatalogSync
    sessions: SessionPool
    inference: OutputInference
    secrets: SecretCache
    concurrency: ServerConcurrency
    reflectors: dict[str, Reflector] = field(default_factory=dict, init=False)
    """Reflectors of the served namespaces, by the name of what they load."""

    def build_reflectors(self, namespace: str) -> dict[str, Reflector]:
        """Return the reflectors of one namespace."""
        reflector = Reflector(
            kube=self.kube,
            path=custom_resource_path(TOOL_SERVERS, namespace=namespace),
            on_change=self.observe,
            transform=lambda item: {"metadata": {name: item["metadata"].get(name) for name in _KEPT_METADATA}},
        )
        return {f"ToolServers in {namespace}": reflector}

    def observe(self, item: Object, deleted: bool) -> None:
        """Apply a changed or deleted ToolServer."""
        before, after = self.servers.observe(item, deleted)
        if after is None:
            if before is not None:
                self._remove(before.key)
            self._drop_unused()
            return
        if before is not None and before.uid != after.uid:
            self._remove(before.key)
            before = None
        self.inference.restore(after)
        if before is None or not before.has_same_connection(after):
            self._drop_unused()
            self.sessions.retry(after.key)
            self.catalogs.start(after)

    async def drop_unused_when_synced(self) -> None:
        """Drop copies of servers that were deleted while no broker ran, once all servers are loaded."""
        for reflector in tuple(self.reflectors.values()):
            await reflector.synced.wait()
        self._drop_unused()

    def _remove(self, key: ObjectKey) -> None:
        self.catalogs.remove(key)
        self.sessions.remove(key)
        self.inference.remove(key)
        self.concurrency.remove(key)

    def _drop_unused(self) -> None:
        """Drop copies and Secrets that belong to no server any more."""
        if all(reflector.synced.is_set() for reflector in self.reflectors.values()):
            self.catalogs.disk_cache.retain(self.servers)
        self.secrets.retain({key for server in self.servers for key in _list_secrets(server)})


def _list_secrets(server: ToolServer) -> set[ObjectKey]:
    return {(server.namespace, name) for name in list_secret_names(server.spec)} if server.spec is not None else set()
