"""The examination of a namespace by the API server: its pools and its ToolServers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mcp_exec_api.constants import POOLS, TOOL_SERVERS
from mcp_exec_client import hints
from mcp_exec_client.check_report import Report
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.credentials import CredentialsError
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object

_LOOKS_STOPPED: Final = "is the part that looks after it running? kubectl get pods in the release's namespace"


@dataclass(frozen=True, kw_only=True)
class ClusterExam:
    """Examines the namespace, by a kubeconfig file's current context."""

    kubeconfig: Path
    namespace: str
    report: Report

    async def run(self) -> None:
        """Looks at pools, then at ToolServers."""
        try:
            async with KubeClient.connect(kubeconfig=self.kubeconfig) as kube:
                await self._all(kube, "pools", POOLS, self._pool, none="make one: the chart's `pool.enabled`")
                await self._all(kube, "toolservers", TOOL_SERVERS, self._server, none="")
        except (CredentialsError, OSError) as error:
            self.report.problem("cluster", f"{self.kubeconfig}: {error}", "name a kubeconfig file that works")

    async def _all(self, kube: KubeClient, what: str, plural: str, examine: Any, *, none: str) -> None:
        try:
            items, _ = await kube.list(custom_resource_path(plural, namespace=self.namespace))
        except ApiError as error:
            known = {403: "get the right to list them", 404: "install the chart: its CRDs are not there"}
            self.report.problem(what, str(error), known.get(error.code, "is the API server reachable from here?"))
            return
        for item in sorted(items, key=lambda each: str(each["metadata"]["name"])):
            examine(str(item["metadata"]["name"]), item.get("status") or {})
        if not items and none:
            self.report.problem(what, f"namespace {self.namespace} has none", none)
        elif not items:
            self.report.ok(what, f"namespace {self.namespace} has none")

    def _pool(self, name: str, status: Object) -> None:
        ready = next((each for each in status.get("conditions") or [] if each.get("type") == "Ready"), None)
        if ready is None:
            self.report.problem(f"pool {name}", "nothing is said of it", _LOOKS_STOPPED)
            return
        reason, message = str(ready.get("reason") or ""), str(ready.get("message") or "")
        if ready.get("status") == "True":
            self.report.ok(f"pool {name}", message)
        else:
            self.report.problem(f"pool {name}", f"{reason}: {message}", hints.for_reason(reason))

    def _server(self, name: str, status: Object) -> None:
        what = f"toolserver {name}"
        if status.get("available"):
            self.report.ok(what, f"{status.get('tools', 0)} tools")
            return
        # why the pod is not ready says more than that nobody answers
        workload = status.get("workload") or {}
        told = workload if workload.get("ready") is False else status
        reason, message = str(told.get("reason") or ""), str(told.get("message") or "")
        if not reason and not message:
            self.report.problem(what, "nothing is said of it", _LOOKS_STOPPED)
            return
        self.report.problem(what, f"{reason}: {message}", hints.for_reason(reason))
