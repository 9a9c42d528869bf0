"""Liveness and readiness of the broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from starlette.responses import JSONResponse, Response

from mcp_exec_broker.catalog.sync import CatalogSync
from mcp_exec_broker.records.audit_log import AuditLog
from mcp_exec_broker.upstream.servers import ToolServerCache
from mcp_exec_common.kube.reflector import Reflector

_CATALOG_SECONDS: Final = 20.0
"""Seconds after the start until the broker is ready although some servers have not answered yet."""


@dataclass(kw_only=True, eq=False)
class BrokerHealth:
    """What the probes of the broker report."""

    reflectors: Mapping[str, Reflector]
    servers: ToolServerCache
    catalogs: CatalogSync
    audit: AuditLog
    is_draining: bool = False
    """Whether the process received a signal to stop."""
    failed_tasks: list[str] = field(default_factory=list)
    """Background tasks that failed: the process must be restarted."""
    _started: float = field(default_factory=monotonic)

    def list_missing(self) -> list[str]:
        """Return what the broker has not loaded yet: ToolServers, and during the first 20 s their tools."""
        missing = [name for name, reflector in self.reflectors.items() if not reflector.synced.is_set()]
        if not missing and monotonic() - self._started < _CATALOG_SECONDS:
            unlisted = [server for server in self.servers if self.catalogs.get_entry(server.key).available is None]
            missing = [f"the tools of {server.namespace}/{server.name}" for server in unlisted]
        return missing

    def report_liveness(self) -> Response:
        """Answer `/healthz`."""
        if failed := self._list_failures():
            return JSONResponse({"status": "failed", "failed": failed}, 503)
        return JSONResponse({"status": "ok"})

    def report_readiness(self) -> Response:
        """Answer `/readyz`."""
        missing = self.list_missing()
        if failed := self._list_failures():
            return JSONResponse({"status": "failed", "missing": failed}, 503)
        if self.is_draining:
            return JSONResponse({"status": "stopping", "missing": missing}, 503)
        if missing:
            return JSONResponse({"status": "starting", "missing": missing}, 503)
        return JSONResponse({"status": "ready", "missing": []})

    def _list_failures(self) -> list[str]:
        """Return what ends only with the process: failed tasks, and an audit log that cannot be written."""
        return [*self.failed_tasks, *([self.audit.failure] if self.audit.failure else [])]
