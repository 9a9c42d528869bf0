"""How a stdio server's pod is, read from its Deployment and pods. Pure functions."""

from typing import Any, Final

from mcp_exec_api.tool_server import Workload
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.executions.output import shorten
from mcp_exec_operator.pods.status import is_over, is_terminating

_PULL_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
_WELL: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_MAX_MESSAGE: Final = 1024


def workload_of(deployment: Object | None, pods: list[Object], *, address: str | None) -> Workload:
    """The workload's status. `pods` are those of the server, whatever their state."""
    if deployment is not None and _is_ready(deployment):
        return Workload(ready=True, address=address)
    reason, message = _problem(deployment, pods)
    return Workload(ready=False, address=address, reason=reason, message=shorten(message, _MAX_MESSAGE) or None)


def _is_ready(deployment: Object) -> bool:
    status = deployment.get("status") or {}
    observed = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    return observed and bool(status.get("readyReplicas"))


def _problem(deployment: Object | None, pods: list[Object]) -> tuple[str, str]:
    alive = [pod for pod in pods if not is_terminating(pod)]
    for pod in sorted(alive, key=lambda each: str(each["metadata"].get("creationTimestamp")), reverse=True):
        if (found := _pod_problem(pod)) is not None:
            return found
    if not alive and (refused := _condition(deployment, "ReplicaFailure")).get("status") == "True":
        text = str(refused.get("message") or "")
        return ("QuotaExceeded" if "quota" in text.lower() else "PodRefused"), text
    return "Starting", "its pod is not ready yet"


def _pod_problem(pod: Object) -> tuple[str, str] | None:
    """Why a pod is not ready and won't be so by itself, or None while all goes well."""
    if (scheduled := _condition(pod, "PodScheduled")).get("status") == "False":
        return "Unschedulable", str(scheduled.get("message") or "")
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
        if reason in _PULL_REASONS:
            return "ImagePullFailed", f"{reason}: {message}"
        if reason == "CrashLoopBackOff":
            return "CrashLoop", _last_end(container)
        if reason not in _WELL:
            return reason, message
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return "CrashLoop", _end(ended)
    if is_over(pod):
        return "PodFailed", str(status.get("message") or status.get("reason") or "its pod ended")
    return None


def _last_end(container: dict[str, Any]) -> str:
    return _end((container.get("lastState") or {}).get("terminated") or {})


def _end(terminated: dict[str, Any]) -> str:
    said = str(terminated.get("message") or "").strip()
    text = f"it ends by itself: {terminated.get('reason') or 'Error'}, exit code {terminated.get('exitCode')}"
    return f"{text}: {said}" if said else text


def _condition(item: Object | None, kind: str) -> dict[str, Any]:
    conditions = ((item or {}).get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})
