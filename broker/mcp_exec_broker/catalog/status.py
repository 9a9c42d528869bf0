"""What a ToolServer's status says: computed here, and written where it differs from what is stored."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_api.meta import Condition, ConditionStatus, micro_time, now, set_condition
from mcp_exec_broker.catalog.entry import CatalogEntry
from mcp_exec_broker.catalog.inferred_outputs import OutputInference, Schemas
from mcp_exec_broker.catalog.sync import CatalogSync
from mcp_exec_broker.upstream.servers import ToolServer, ToolServerCache
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object

log = logging.getLogger(__name__)

_OWN: Final = (
    "observedGeneration",
    "available",
    "protocolVersion",
    "server",
    "tools",
    "catalogHash",
    "lastSync",
    "reason",
    "message",
    "inferredOutputs",
    "conditions",
)
_SYNC_PART: Final = 0.5
"""The part of the refresh time before which a new lastSync alone is not written: replicas list, too."""


def build_status(server: ToolServer, entry: CatalogEntry, schemas: Schemas, *, moment: datetime) -> Object:
    """All that the broker writes of a server; what is not there is left out, for typed fields take no empty text."""
    known = entry.known
    found: Object = {
        "observedGeneration": entry.generation,
        "available": entry.available is True,
        "protocolVersion": entry.protocol_version or None,
        "server": entry.identity or None,
        "tools": len(known.catalog.tools) if known else None,
        "catalogHash": known.catalog.hash if known else None,
        "lastSync": micro_time(entry.listed_at) if entry.listed_at else None,
        "reason": entry.reason or None,
        "message": entry.message[:1000] or None,
        "inferredOutputs": schemas or None,
        "conditions": [_without_empty(each.to_api()) for each in _conditions(server, entry, moment)],
    }
    return {name: value for name, value in found.items() if value is not None}


def _without_empty(condition: Object) -> Object:
    """Kubernetes 1.20 takes an empty text for null, and then refuses it."""
    return {name: value for name, value in condition.items() if value != ""}


def build_patch(stored: Mapping[str, Any], new: Object, *, refresh_seconds: float) -> Object | None:
    """A merge patch from what is stored to what is wanted, or none where it would say nothing new."""
    patch = {name: new.get(name) for name in _OWN if new.get(name) != stored.get(name)}
    if patch.keys() == {"lastSync"} and not _is_old(stored.get("lastSync"), new.get("lastSync"), refresh_seconds):
        return None
    old, schemas = stored.get("inferredOutputs"), patch.get("inferredOutputs")
    if isinstance(old, Mapping) and isinstance(schemas, Mapping):
        # a merge patch merges objects deeply: what is no part of a schema any more has to be named
        patch["inferredOutputs"] = _merge_patch(old, schemas)
    return patch or None


def _conditions(server: ToolServer, entry: CatalogEntry, moment: datetime) -> list[Condition]:
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
        message=entry.message[:1000],
        last_transition_time=moment,
    )
    found = Condition(
        type="CredentialsFound",
        status=ConditionStatus.TRUE if entry.credentials_found else ConditionStatus.FALSE,
        reason="Found" if entry.credentials_found else entry.reason,
        message="" if entry.credentials_found else entry.message[:1000],
        last_transition_time=moment,
    )
    return set_condition(set_condition(conditions, available), found)


def _is_old(stored: object, new: object, refresh_seconds: float) -> bool:
    try:
        before, after = (datetime.fromisoformat(str(each)) for each in (stored, new))
    except ValueError:
        return True
    return (after - before).total_seconds() >= refresh_seconds * _SYNC_PART


def _merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Object:
    patch: Object = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            patch[name] = _merge_patch(before, value)
        elif before != value:
            patch[name] = value
    return patch


@dataclass(frozen=True, kw_only=True)
class ToolServerStatusWriter:
    """Writes the status of ToolServers."""

    kube: KubeClient
    servers: ToolServerCache
    catalogs: CatalogSync
    inferences: OutputInference

    async def write(self, key: tuple[str, str]) -> None:
        """Brings one server's status up to date; what goes wrong is logged, and made good by the next change."""
        server, entry = self.servers.get(*key), self.catalogs.entry(key)
        if server is None or entry.available is None:
            return
        refresh = server.spec.refresh_seconds if server.spec is not None else 300
        new = build_status(server, entry, self.inferences.of(key), moment=now())
        patch = build_patch(server.status, new, refresh_seconds=refresh)
        if patch is None:
            return
        path = custom_resource_path(TOOL_SERVERS, namespace=server.namespace, name=server.name) + "/status"
        try:
            await self.kube.patch(path, {"status": patch})
        except ApiError as error:
            if error.code != 404:
                log.warning("a status was not written: %s", error, extra={"namespace": key[0], "server": key[1]})
