"""Liveness and readiness of the broker."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from starlette.responses import JSONResponse, Response

from mcp_exec_broker.core.catalog.sync import CatalogSync
from mcp_exec_broker.core.feature import Feature
from mcp_exec_broker.core.upstream.servers import ToolServerCache
from mcp_exec_common.kube.reflector import Reflector, find_unsynced
from mcp_exec_common.process.health import report_liveness, report_readiness

_CATALOG_SECONDS: Final = 20.0
"""Seconds after the start until the broker is ready although some servers have not answered yet."""


@dataclass(kw_only=True, eq=False)
class BrokerHealth:
    """What the probes of the broker report."""

    reflectors: Mapping[str, Reflector]
    servers: ToolServerCache
    catalogs: CatalogSync
    features: Collection[Feature]
    is_draining: bool = False
    """Whether the process received a signal to stop."""
    failed_tasks: list[str] = field(default_factory=list)
    """Background tasks that failed: the process must be restarted."""
    _started: float = field(default_factory=monotonic)

    def list_missing(self) -> list[str]:
        """Return what the broker has not loaded yet: ToolServers, and during the first 20 s their tools."""
        missing = find_unsynced(self.reflectors)
        if not missing and monotonic() - self._started < _CATALOG_SECONDS:
            unlisted = [server for server in self.servers if self.catalogs.get_entry(server.key).available is None]
            missing = [f"the tools of {server.namespace}/{server.name}" for server in unlisted]
        return missing

    def report_liveness(self) -> Response:
        """Answer `/healthz`."""
        report = report_liveness(self._list_failures())
        return JSONResponse(report.body, report.status_code)

    def report_readiness(self) -> Response:
        """Answer `/readyz`."""
        if failed := self._list_failures():
            return JSONResponse({"status": "failed", "missing": failed}, 503)
        report = report_readiness(self.list_missing(), stopping=self.is_draining)
        return JSONResponse(report.body, report.status_code)

    def _list_failures(self) -> list[str]:
        """Return what ends only with the process: failed tasks, and features such as an audit log on a stuck disk."""
        return [*self.failed_tasks, *(feature.failure for feature in self.features if feature.failure)]
