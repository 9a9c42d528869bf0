"""Checks of doctor of the release that serves a namespace: which one it is, and whether its processes run.

The label of the namespace or its Lease names the release. Whoever may read no more than the namespace sees by the
Lease when an operator last renewed it. With the right to read the release's namespace, the Deployments say more.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from mcp_exec_api.constants import LABEL_RELEASE
from mcp_exec_api.meta import now
from mcp_exec_client.cli.backends.checks import CheckReport
from mcp_exec_client.network import describe_failure
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object

LEASES_GROUP: Final = "coordination.k8s.io/v1"
APPS_GROUP: Final = "apps/v1"
OF_RELEASES: Final = "app.kubernetes.io/name=mcp-exec"
"""Selects the Deployments and pods of all releases."""
COMPONENTS: Final = ("operator", "gateway", "broker")
_INSTANCE: Final = "app.kubernetes.io/instance"
_COMPONENT: Final = "app.kubernetes.io/component"
_CLAIM: Final = "mcp-exec"
"""Name of the Lease in a served namespace."""
_CLAIM_SECONDS: Final = 180.0
"""An operator renews its Lease three times in this time."""
_LEADER_SECONDS: Final = 60.0
"""Seconds since the leader's last renewal: several times its longest term, as clocks may differ."""
_TEAMS: Final = "add it to the chart's `namespaces` (docs/platform/teams.md)"


@dataclass(kw_only=True)
class ReleaseState:
    """What the checks found, for those of a namespace's objects, whose statuses the processes write."""

    namespace: str = ""
    """Namespace of the release; empty if it is not known."""
    stopped: set[str] = field(default_factory=set)
    """Components that do not run."""


@dataclass(frozen=True, kw_only=True)
class ReleaseChecks:
    """Checks of the release that serves a namespace."""

    kube: KubeClient
    namespace: str
    report: CheckReport
    state: ReleaseState = field(default_factory=ReleaseState)

    async def run(self) -> ReleaseState:
        """Check operator, gateway and broker. Raises OSError without a connection."""
        label, lease = await self._read_label(), await self._read_lease()
        holder = str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")
        self.state.namespace = (label or holder.replace("/", ".")).partition(".")[0]
        try:
            found = await self._list_deployments()
        except ApiError as error:
            self._check_claim(lease)
            self.report.skipped("pods of the release", f"they cannot be listed: {describe_failure(error)}")
            return self.state
        operator = self._find_operator(found, label=label, holder=holder)
        if operator is None:
            return self.state
        self.state.namespace = str(operator["metadata"]["namespace"])
        instance = operator["metadata"]["labels"].get(_INSTANCE)
        own = {
            str(each["metadata"]["labels"].get(_COMPONENT)): each
            for each in found
            if each["metadata"]["namespace"] == self.state.namespace
            and each["metadata"]["labels"].get(_INSTANCE) == instance
        }
        if await self._is_named(operator):
            for component in COMPONENTS:
                await self._check_component(component, own.get(component))
        return self.state

    async def _read_label(self) -> str:
        """Return the release that the namespace's label names; empty without one, or without the right to read it."""
        try:
            found = await self.kube.find(resource_path("namespaces", name=self.namespace))
        except ApiError:
            return ""
        return str((((found or {}).get("metadata") or {}).get("labels") or {}).get(LABEL_RELEASE) or "")

    async def _read_lease(self) -> Object | None:
        """Return the namespace's Lease; None without one, or without the right to read it."""
        path = resource_path("leases", namespace=self.namespace, name=_CLAIM, group=LEASES_GROUP)
        try:
            return await self.kube.find(path)
        except ApiError:
            return None

    async def _list_deployments(self) -> list[Object]:
        """Return the Deployments of releases: in the release's namespace, or in all if it is not known."""
        path = resource_path("deployments", namespace=self.state.namespace or None, group=APPS_GROUP)
        items, _ = await self.kube.list(path, selector=OF_RELEASES)
        return items

    def _find_operator(self, found: list[Object], *, label: str, holder: str) -> Object | None:
        """Return the operator of the namespace's release. Without one, report it."""
        operators = [each for each in found if each["metadata"]["labels"].get(_COMPONENT) == "operator"]
        own = [each for each in operators if _names_release(each, label=label, holder=holder)]
        if own:
            return own[0]
        if not label and not holder and len(operators) == 1:
            return operators[0]
        self.state.stopped |= {"operator", "broker"}
        if label or holder:
            message = f"namespace {self.namespace} belongs to the release {label or holder}, which has no operator"
            hint = f"install that release, or change the namespace's label {LABEL_RELEASE} (docs/platform/teams.md)"
        elif operators:
            names = ", ".join(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in operators)
            message, hint = f"no release has claimed namespace {self.namespace}; there are: {names}", _TEAMS
        else:
            message, hint = "the cluster has no operator", "install the chart"
        self.report.problem("operator", message, hint)
        return None

    async def _is_named(self, operator: Object) -> bool:
        """Return whether the release names the namespace. If not, report it. Without the right to look, it does."""
        name = str(operator["metadata"]["name"]).removesuffix("-operator")
        try:
            path = resource_path("configmaps", namespace=self.state.namespace, name=f"{name}-namespaces")
            found = await self.kube.find(path)
        except ApiError:
            return True
        named = str(((found or {}).get("data") or {}).get("namespaces") or "").split(",")
        if found is None or self.namespace in named:
            return True
        self.state.stopped |= {"operator", "broker"}
        message = f"the release {self.state.namespace}/{name} does not serve namespace {self.namespace}"
        self.report.problem("operator", message, f"use one of {', '.join(named)}, or {_TEAMS}")
        return False

    def _check_claim(self, lease: Object | None) -> None:
        """Judge the operator by the namespace's Lease, which is all that may be read."""
        if lease is None:
            self.report.skipped("operator", f"namespace {self.namespace} has no Lease {_CLAIM} that may be read")
            return
        age = _measure_age(lease)
        holder = lease["spec"].get("holderIdentity")
        message = f"{holder} renewed the Lease {_CLAIM} of namespace {self.namespace} {_describe_age(age)} ago"
        if age is not None and age < _CLAIM_SECONDS:
            self.report.ok("operator", message)
            return
        self.state.stopped.add("operator")
        hint = "ask who runs the release to look at its operator: kubectl get deployments,pods in its namespace"
        self.report.problem("operator", f"the last renewal is too old: {message}", hint)

    async def _check_component(self, component: str, deployment: Object | None) -> None:
        if deployment is None and component == "broker":
            self.report.ok(f"{component} pods", "the release has none (`broker.enabled`), so code cannot call tools")
            return
        if deployment is None:
            self._report_stopped(component, "its Deployment does not exist", "helm upgrade creates it")
            return
        name, wanted = deployment["metadata"]["name"], int(deployment["spec"].get("replicas", 1))
        there = f"deployment {name} -n {self.state.namespace}"
        ready = int((deployment.get("status") or {}).get("readyReplicas") or 0)
        if wanted == 0:
            hint = f"kubectl scale {there} --replicas=1"
            self._report_stopped(component, f"Deployment {name} is scaled to 0 replicas", hint)
        elif ready == 0:
            cause = await self._find_cause(deployment)
            message = f"none of {wanted} is ready: {cause}"
            self._report_stopped(component, message, f"correct that; kubectl describe {there} shows more")
        elif component == "operator" and (problem := await self._find_leaderless(name)):
            hint = f"kubectl logs deployment/{name} -n {self.state.namespace} names what it waits for"
            self._report_stopped(component, problem, hint)
        else:
            self.report.ok(f"{component} pods", f"{ready} of {wanted} are ready")

    def _report_stopped(self, component: str, message: str, hint: str) -> None:
        self.state.stopped.add(component)
        self.report.problem(f"{component} pods", message, hint)

    async def _find_leaderless(self, name: str) -> str:
        """Return why no operator leads; empty if one does, or if the Lease may not be read."""
        path = resource_path("leases", namespace=self.state.namespace, name=name, group=LEASES_GROUP)
        try:
            lease = await self.kube.find(path)
        except ApiError:
            return ""
        if lease is None or not (lease.get("spec") or {}).get("holderIdentity"):
            return f"no pod leads: nobody holds the Lease {name}"
        age = _measure_age(lease)
        if age is not None and age < _LEADER_SECONDS:
            return ""
        return f"no pod leads: the last renewal of the Lease {name} was {_describe_age(age)} ago"

    async def _find_cause(self, deployment: Object) -> str:
        """Return why a Deployment has no ready pod: what refuses its pods, or what keeps the first from being ready."""
        refusals = [
            str(each.get("message"))
            for each in (deployment.get("status") or {}).get("conditions") or []
            if each.get("type") == "ReplicaFailure" and each.get("status") == "True"
        ]
        if refusals:
            return refusals[0]
        labels = deployment["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        try:
            pods, _ = await self.kube.list(
                resource_path("pods", namespace=self.state.namespace), selector=selector, transform=_reduce_pod
            )
        except ApiError as error:
            return describe_failure(error)
        if not pods:
            return "no pod was created; kubectl describe replicasets shows why"
        return next((text for text in map(_explain_pod, pods) if text), f"pod {pods[0]['name']} is not ready")


def _names_release(operator: Object, *, label: str, holder: str) -> bool:
    """Return whether an operator's Deployment is of the release that a label or the holder of a Lease names."""
    metadata = operator["metadata"]
    if not label:
        return f"{metadata['namespace']}/{metadata['name']}" == holder
    env = [
        variable
        for container in operator["spec"]["template"]["spec"]["containers"]
        for variable in container.get("env") or []
    ]
    return any(each.get("name") == "MCP_EXEC_RELEASE_LABEL" and each.get("value") == label for each in env)


def _reduce_pod(pod: Object) -> Object:
    return {"name": pod["metadata"]["name"], "status": pod.get("status") or {}}


def _explain_pod(pod: Object) -> str:
    """Return why a pod is not ready, in the kubelet's or the scheduler's words; empty if nothing says so."""
    status = pod["status"]
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"pod {pod['name']}: {condition.get('reason')}: {condition.get('message')}"
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            code = f" (exit code {ended['exitCode']}, {ended.get('reason')})" if "exitCode" in ended else ""
            return f"pod {pod['name']}: {waiting['reason']}: {waiting.get('message', '')}{code}"
    return ""


def _measure_age(lease: Object) -> float | None:
    """Return the seconds since a Lease was renewed; None if its time cannot be read."""
    try:
        renewed = datetime.fromisoformat(str((lease.get("spec") or {}).get("renewTime")))
    except ValueError:
        return None
    return (now() - renewed.replace(tzinfo=renewed.tzinfo or UTC)).total_seconds()


def _describe_age(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    return f"{max(0, seconds):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
