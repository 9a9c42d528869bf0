"""State of a pod from its object: why it is not ready yet, why it ended, what it may have used. Pure functions."""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from mcp_exec_api.code_execution import Usage
from mcp_exec_api.constants import SANDBOX_CONTAINER
from mcp_exec_api.meta import parse_quantity
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.protocol import EndEvent

IMAGE_PULL_REASONS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
"""Waiting reasons of a container whose image can't be pulled."""
_NODE_REASONS: Final = frozenset({"NodeLost", "NodeShutdown", "Shutdown", "Terminated"})
"""Reasons in a pod's status that mean that its node is lost or shut down."""
_SIGKILLED: Final = 137
_MAX_TERMINATION_CHARACTERS: Final = 4096
"""The kubelet keeps as much of a container's last output."""
NORMAL_WAITING_REASONS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Waiting reasons of a container that is starting normally."""
_MAX_MEMORY_BYTES: Final = 2**40
"""Memory of a pod without a known limit."""
_MAX_CPUS: Final = 64.0
"""Cores of a pod without a known limit."""
_CPU_SLACK_SECONDS: Final = 1.0
"""Time in addition to a sandbox's life, because CPU limits hold on average and clocks have steps."""
_LIMIT_RANGE: Final = re.compile(r"\b(maximum|minimum) \S+ usage per |max limit to request ratio per ", re.IGNORECASE)
"""The API server's words if a LimitRange refuses a pod."""


@dataclass(frozen=True, kw_only=True)
class PodProblem:
    """Why there is no pod, or not any more: a word for programs and a sentence for people."""

    reason: Reason
    message: str
    held: bool = False
    """Whether the pod is kept, because a replacement would have the same problem."""


class PodPhase(StrEnum):
    """Phases of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


def phase_of(pod: Object) -> str:
    """Return the phase, Pending if there is none yet."""
    return str((pod.get("status") or {}).get("phase") or PodPhase.PENDING)


def is_terminating(pod: Object) -> bool:
    """Return whether the pod was deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def age_of_deletion(pod: Object, moment: datetime) -> float:
    """Return the seconds since the deletion, always above 0, or 0 if the pod was not deleted."""
    deleted = pod["metadata"].get("deletionTimestamp")
    return max(0.001, (moment - datetime.fromisoformat(deleted)).total_seconds()) if deleted else 0.0


def age_of(pod: Object, moment: datetime) -> float:
    """Return the seconds since the creation."""
    created = pod["metadata"].get("creationTimestamp")
    return max(0.0, (moment - datetime.fromisoformat(created)).total_seconds()) if created else 0.0


def is_unready(pod: Object) -> bool:
    """Return whether a running pod must not be used: it is not ready (set by its node), or it was restarted."""
    unready = get_condition(pod, "Ready").get("status") == "False" or bool(_container(pod).get("restartCount"))
    return phase_of(pod) == PodPhase.RUNNING and unready


def address_of(pod: Object) -> str:
    """Return the address, or an empty string until the container runs."""
    return str((pod.get("status") or {}).get("podIP") or "") if phase_of(pod) == PodPhase.RUNNING else ""


def node_of(pod: Object) -> str | None:
    """Return the name of the node, or None if the pod is not scheduled."""
    node = (pod.get("spec") or {}).get("nodeName")
    return str(node) if node else None


def tolerations_of(pod: Object | None) -> list[Object]:
    """Return the tolerations of the spec."""
    return ((pod or {}).get("spec") or {}).get("tolerations") or []


def is_over(pod: Object) -> bool:
    """Return whether the container has ended. It is never restarted."""
    return phase_of(pod) in (PodPhase.FAILED, PodPhase.SUCCEEDED) or _terminated(pod) is not None


def starting_problem(pod: Object) -> PodProblem | None:
    """Return why a starting pod will not be ready soon, or None if it starts normally."""
    name = pod["metadata"]["name"]
    if is_over(pod):
        if problem := _read_failed_import(pod):
            return PodProblem(reason=Reason.PREIMPORT_FAILED, message=f"pod {name} did not start: {problem}")
        return PodProblem(reason=Reason.POD_FAILED, message=f"pod {name} ended before it was ready: {_end(pod)}")
    if (scheduled := get_condition(pod, "PodScheduled")).get("status") == "False":
        return PodProblem(reason=Reason.UNSCHEDULABLE, message=str(scheduled.get("message", "")), held=True)
    waiting = (_container(pod).get("state") or {}).get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason in IMAGE_PULL_REASONS:
        return PodProblem(reason=Reason.IMAGE_PULL_FAILED, message=f"{reason}: {message}", held=True)
    if reason not in NORMAL_WAITING_REASONS:
        return PodProblem(reason=Reason.POD_FAILED, message=f"{reason}: {message}")
    return None


def loss_of(pod: Object | None, *, name: str, node_loss: str = "", drained: bool = False) -> PodProblem:
    """Return why an execution's pod does not answer. `pod` is None if it does not exist any more.

    `node_loss` says why its node is lost, or is empty. `drained` says whether pods should leave the node.
    """
    if pod is not None and (killed := _killed(pod)) is not None:
        return killed
    if node_loss:
        return PodProblem(reason=Reason.NODE_LOST, message=node_loss)
    if pod is None:
        return PodProblem(reason=Reason.SANDBOX_LOST, message=f"pod {name} is gone")
    if (moved := _moved(pod, name)) is not None:
        return moved
    if is_terminating(pod):
        message = f"pod {name} was deleted while it ran"
        if drained:
            return PodProblem(reason=Reason.EVICTED, message=f"{message}: its node is cordoned")
        return PodProblem(reason=Reason.SANDBOX_LOST, message=message)
    if is_over(pod):
        reason = Reason.SUPERVISOR_DIED if _terminated(pod) else Reason.SANDBOX_LOST
        return PodProblem(reason=reason, message=f"pod {name} ended: {_end(pod)}")
    return PodProblem(reason=Reason.STREAM_BROKEN, message=f"pod {name} does not answer")


def _killed(pod: Object) -> PodProblem | None:
    """Return the resource limit that ended the sandbox, or None."""
    status = pod.get("status") or {}
    message = str(status.get("message") or "")
    if status.get("reason") == "Evicted":
        lowered = message.lower()
        full = any(word in lowered for word in ("ephemeral", "emptydir", "local storage"))
        return PodProblem(reason=Reason.STORAGE_LIMIT if full else Reason.EVICTED, message=message)
    if (_terminated(pod) or {}).get("reason") == "OOMKilled":
        return PodProblem(
            reason=Reason.OUT_OF_MEMORY, message="the sandbox was killed: it used more memory than its limit"
        )
    return None


def _moved(pod: Object, name: str) -> PodProblem | None:
    """Return that the pod was evicted or ended with its node, or None if Kubernetes does not report that."""
    if (pod.get("status") or {}).get("reason") in _NODE_REASONS:
        return PodProblem(reason=Reason.NODE_LOST, message=f"pod {name} ended with its node: {_end(pod)}")
    disruption = get_condition(pod, "DisruptionTarget")  # from Kubernetes 1.26 on
    if disruption.get("status") != "True":
        return None
    reason = Reason.NODE_LOST if disruption.get("reason") == "DeletionByPodGC" else Reason.EVICTED
    text = disruption.get("message") or disruption.get("reason")
    return PodProblem(reason=reason, message=f"pod {name} had to go: {text}")


def refusal_of(error: ApiError) -> PodProblem:
    """Return why the API server refused a pod."""
    text = error.message
    lowered = text.lower()
    if error.code == 403 and "runtimeclass" in lowered and "not found" in lowered:
        reason = Reason.RUNTIME_CLASS_NOT_FOUND
    elif error.code == 403 and is_of_limit_range(lowered):
        reason = Reason.LIMIT_RANGE_EXCEEDED
    elif error.code == 403 and "quota" in lowered:
        reason = Reason.QUOTA_EXCEEDED
    elif error.code in (0, 429) or error.code >= 500:
        reason = Reason.POOL_UNAVAILABLE
    else:
        reason = Reason.POD_REFUSED
    return PodProblem(reason=reason, message=text)


def is_of_limit_range(message: str) -> bool:
    """Return whether the API server's message about a pod is that of a LimitRange."""
    return _LIMIT_RANGE.search(message) is not None


def _container(pod: Object) -> dict[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return statuses[0] if statuses else {}


def get_condition(item: Object, kind: str) -> dict[str, Any]:
    """Return an object's status condition of that type, or an empty dict."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _terminated(pod: Object) -> dict[str, Any] | None:
    return (_container(pod).get("state") or {}).get("terminated")


def _read_failed_import(pod: Object) -> str:
    """Return why a module of `spec.preimport` can't be imported, from the last line of the sandbox's log, or ""."""
    lines = str((_terminated(pod) or {}).get("message") or "").strip()[-_MAX_TERMINATION_CHARACTERS:].splitlines()
    try:
        line = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(line, dict) or line.get("reason") != Reason.PREIMPORT_FAILED.value:
        return ""
    return str(line.get("message") or "")


def _end(pod: Object) -> str:
    status = pod.get("status") or {}
    terminated = _terminated(pod) or {}
    parts = [
        str(status.get("reason") or ""),
        str(terminated.get("reason") or ""),
        _exit(terminated["exitCode"]) if "exitCode" in terminated else "",
        str(terminated.get("message") or status.get("message") or ""),
    ]
    return ", ".join(part for part in parts if part) or f"phase {phase_of(pod)}"


def _exit(code: int) -> str:
    # since Kubernetes 1.28 a container is killed as a whole; containerd may omit the reason (containerd#8180)
    return f"exit code {code}" + (": killed, as the kernel does if memory is exhausted" if code == _SIGKILLED else "")


def build_usage(end: EndEvent | None, *, pod: Object | None, sandbox_seconds: float, code_bytes: int) -> Usage:
    """Return what an execution used. `end` is the last event of its run, `pod` the newest object of its pod."""
    memory_limit, cpus = read_pod_limits(pod)
    cpu = None if end is None else end.cpu_seconds
    memory = None if end is None else end.peak_memory_bytes
    return Usage(
        cpu_seconds=None if cpu is None else round(min(cpu, (sandbox_seconds + _CPU_SLACK_SECONDS) * cpus), 6),
        peak_memory_bytes=None if memory is None else min(memory, memory_limit),
        sandbox_seconds=round(max(sandbox_seconds, 0.0), 3),
        code_bytes=code_bytes,
    )


def read_pod_limits(pod: Object | None) -> tuple[int, float]:
    """Return memory in bytes and CPU in cores that the pod's container may use."""
    containers = ((pod or {}).get("spec") or {}).get("containers") or []
    limits = next(
        (
            (each.get("resources") or {}).get("limits") or {}
            for each in containers
            if each.get("name") == SANDBOX_CONTAINER
        ),
        {},
    )
    return int(_read(limits, "memory", _MAX_MEMORY_BYTES)), _read(limits, "cpu", _MAX_CPUS)


def _read(limits: dict[str, Any], name: str, default: float) -> float:
    try:
        return float(parse_quantity(str(limits[name])))
    except (KeyError, ValueError):
        return default
