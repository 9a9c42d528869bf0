"""Checks of doctor in a namespace at the API server. They need the extra `kubectl`, those of a gateway do not."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcp_exec_api.constants import POOLS, TOOL_SERVERS
from mcp_exec_client.cli.backends.bundle import Bundle
from mcp_exec_client.cli.backends.checks import CheckReport, hint_for_reason, hint_for_server_reason
from mcp_exec_client.cli.backends.release_checks import ReleaseChecks, ReleaseState
from mcp_exec_client.network import describe_failure
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.credentials import CredentialsError
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.version import (
    EARLIER_DEFINITIONS,
    describe_deletion,
    describe_support,
    find_earlier_definitions,
    read_version,
)

_STALE: Final = "its status is not up to date, since no {} runs"
_NO_STATUS: Final = "it has no status yet"
_CONTROLLER_HINT: Final = (
    "is the namespace among the chart's `namespaces`, and are operator and broker running? "
    "kubectl get pods in the release's namespace"
)
_API_HINTS: Final = {403: "get the right to list them", 404: "install the chart: its CRDs do not exist"}


@dataclass(frozen=True, kw_only=True)
class ClusterChecks:
    """Checks of one namespace, with a context of a kubeconfig file."""

    kubeconfig: Path | None
    """None means the pod's service account."""
    context: str | None
    """None means the current context."""
    namespace: str | None
    """None means the context's own."""
    report: CheckReport
    bundle: Bundle | None = None
    """Gets objects, Events and logs of what is checked."""

    async def run(self) -> ReleaseState:
        """Check the cluster's version, the definitions, the release, the pools, then the ToolServers."""
        state = ReleaseState()
        try:
            async with KubeClient.connect(kubeconfig=self.kubeconfig, context=self.context) as kube:
                await self._check_version(kube)
                await self._check_definitions(kube)
                namespace = self.namespace or kube.credentials.namespace or "default"
                await ReleaseChecks(kube=kube, namespace=namespace, report=self.report, state=state).run()
                await self._check_all(
                    kube,
                    namespace,
                    "pools",
                    POOLS,
                    self._skip_pool if "operator" in state.stopped else self._check_pool,
                    none_hint="create one: the chart's `pool.enabled`",
                )
                check_server = self._skip_server if "broker" in state.stopped else self._check_server
                await self._check_all(kube, namespace, "toolservers", TOOL_SERVERS, check_server)
                if self.bundle is not None:
                    await self.bundle.collect(kube, release=state.namespace, namespace=namespace)
        except (CredentialsError, OSError) as error:
            self.report.problem("cluster", f"{self.kubeconfig}: {error}", "name a kubeconfig file that works")
        return state

    async def _check_version(self, kube: KubeClient) -> None:
        version = await read_version(kube)
        if version is None:
            self.report.skipped("kubernetes", "the API server does not say its version")
        elif difference := describe_support(version):
            self.report.warning("kubernetes", difference)
        else:
            self.report.ok("kubernetes", f"{version} is supported")

    async def _check_definitions(self, kube: KubeClient) -> None:
        try:
            earlier = await find_earlier_definitions(kube)
        except ApiError as error:
            self.report.skipped("definitions", describe_failure(error))
            return
        if earlier:
            self.report.problem("definitions", EARLIER_DEFINITIONS, describe_deletion(earlier))

    async def _check_all(
        self,
        kube: KubeClient,
        namespace: str,
        subject: str,
        plural: str,
        check: Callable[[str, Object], None],
        *,
        none_hint: str = "",
    ) -> None:
        """Check all objects of a kind. That there are none is a problem if there is a hint for it."""
        try:
            items, _ = await kube.list(custom_resource_path(plural, namespace=namespace))
        except ApiError as error:
            hint = _API_HINTS.get(error.code, "is the API server reachable from here?")
            self.report.problem(subject, describe_failure(error), hint)
            return
        for item in sorted(items, key=lambda item: str(item["metadata"]["name"])):
            check(str(item["metadata"]["name"]), item.get("status") or {})
        if not items and none_hint:
            self.report.problem(subject, f"namespace {namespace} has none", none_hint)
        elif not items:
            self.report.ok(subject, f"namespace {namespace} has none")

    def _skip_pool(self, name: str, _: Object) -> None:
        self.report.skipped(f"pool {name}", _STALE.format("operator"))

    def _skip_server(self, name: str, _: Object) -> None:
        self.report.skipped(f"toolserver {name}", _STALE.format("broker"))

    def _check_pool(self, name: str, status: Object) -> None:
        conditions = status.get("conditions") or []
        ready = next((condition for condition in conditions if condition.get("type") == "Ready"), None)
        if ready is None:
            self.report.problem(f"pool {name}", _NO_STATUS, _CONTROLLER_HINT)
            return
        reason, message = str(ready.get("reason") or ""), str(ready.get("message") or "")
        if ready.get("status") == "True":
            self.report.ok(f"pool {name}", message)
        else:
            self.report.problem(f"pool {name}", f"{reason}: {message}", hint_for_reason(reason))

    def _check_server(self, name: str, status: Object) -> None:
        subject = f"toolserver {name}"
        if status.get("available"):
            self.report.ok(subject, f"{status.get('tools', 0)} tools")
            return
        # the workload's reason is the cause if the pod is not ready; that the server does not answer is its effect
        workload = status.get("workload") or {}
        source = workload if workload.get("ready") is False else status
        reason, message = str(source.get("reason") or ""), str(source.get("message") or "")
        if not reason and not message:
            self.report.problem(subject, _NO_STATUS, _CONTROLLER_HINT)
            return
        self.report.problem(subject, f"{reason}: {message}", hint_for_server_reason(reason))
