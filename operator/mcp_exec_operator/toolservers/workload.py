"""Validation of a ToolServer's spec, and the status of its workload, from its Deployment and pods. Pure functions."""

import re
from typing import Any, Final

from pydantic import ValidationError

from mcp_exec_api.meta import field_errors, parse_quantity
from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.tool_server import Stdio, ToolServerSpec, Workload
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.pods.integrity import find_changes
from mcp_exec_operator.pods.status import (
    IMAGE_PULL_REASONS,
    NORMAL_WAITING_REASONS,
    get_condition,
    is_over,
    is_terminating,
)
from mcp_exec_operator.toolservers.manifests import reserved_variables
from mcp_exec_tools.text import shorten

_MAX_MESSAGE: Final = 1024
_MAX_NAMED: Final = 8


def build_workload(deployment: Object, pods: list[Object], *, address: str | None) -> Workload:
    """Return the workload's status. `pods` are all pods with the labels of the server, in any state.

    The server's Service leads to any pod with these labels, so that a server with a pod of others is not called.
    """
    if _is_ready(deployment):
        if strangers := _find_strangers(deployment, pods):
            message = f"pods have the labels of the server, but not its template: {', '.join(strangers)}; delete them"
            return build_failure(ServerReason.PODS_OF_OTHERS, message, address=address)
        return Workload(ready=True, address=address)
    reason, message = _find_problem(deployment, pods)
    return build_failure(reason, message, address=address)


def build_failure(reason: ServerReason, message: str, *, address: str | None = None) -> Workload:
    """Return the status of a workload that is not ready. A long message is cut."""
    return Workload(ready=False, address=address, reason=reason, message=shorten(message, _MAX_MESSAGE) or None)


def _find_strangers(deployment: Object, pods: list[Object]) -> list[str]:
    """Return the names of pods that do not run what the Deployment's template says, as it says; at most eight."""
    alive = (pod for pod in pods if not is_terminating(pod) and not is_over(pod))
    return [pod["metadata"]["name"] for pod in alive if find_changes(deployment["spec"]["template"], pod)][:_MAX_NAMED]


def _is_ready(deployment: Object) -> bool:
    status = deployment.get("status") or {}
    observed = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    return observed and bool(status.get("readyReplicas"))


def _find_problem(deployment: Object, pods: list[Object]) -> tuple[ServerReason, str]:
    """Return reason and message, by the newest pod that has a problem."""
    alive = [pod for pod in pods if not is_terminating(pod)]
    for pod in sorted(alive, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True):
        if (problem := _find_pod_problem(pod)) is not None:
            return problem
    if not alive and (failure := get_condition(deployment, "ReplicaFailure")).get("status") == "True":
        message = str(failure.get("message") or "")
        return (ServerReason.QUOTA_EXCEEDED if "quota" in message.lower() else ServerReason.POD_REFUSED), message
    return ServerReason.STARTING, "the pod is not ready yet"


def _find_pod_problem(pod: Object) -> tuple[ServerReason, str] | None:
    """Return why a pod will not become ready unless something is changed; None if it starts normally."""
    if (scheduled := get_condition(pod, "PodScheduled")).get("status") == "False":
        return ServerReason.UNSCHEDULABLE, str(scheduled.get("message") or "")
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
        if reason in IMAGE_PULL_REASONS:
            return ServerReason.IMAGE_PULL_FAILED, f"{reason}: {message}"
        if reason == "CrashLoopBackOff":
            return ServerReason.CRASH_LOOP, _describe_exit((container.get("lastState") or {}).get("terminated") or {})
        if reason not in NORMAL_WAITING_REASONS:
            return _find_secret_reason(message) or ServerReason.CONTAINER_NOT_STARTED, f"{reason}: {message}"
        terminated = (container.get("state") or {}).get("terminated") or {}
        if terminated.get("exitCode"):
            return ServerReason.CRASH_LOOP, _describe_exit(terminated)
    if is_over(pod):
        return ServerReason.POD_FAILED, str(status.get("message") or status.get("reason") or "the pod ended")
    return None


def _find_secret_reason(message: str) -> ServerReason | None:
    """Return the reason of a container without its Secret, by the kubelet's message; None for another message."""
    if re.search(r'secret "[^"]*" not found', message, re.IGNORECASE):
        return ServerReason.SECRET_NOT_FOUND
    return ServerReason.SECRET_KEY_NOT_FOUND if re.search(r"find key .{1,253} in Secret", message) else None


def _describe_exit(terminated: dict[str, Any]) -> str:
    output = str(terminated.get("message") or "").strip()
    text = f"the server exited: {terminated.get('reason') or 'Error'}, exit code {terminated.get('exitCode')}"
    return f"{text}: {output}" if output else text


class CannotRunServer(Exception):
    """The server can't be run as specified. `workload` is the status that says why."""

    def __init__(self, reason: ServerReason, message: str) -> None:
        super().__init__(message)
        self.workload = build_failure(reason, message)


def validate_stdio(body: Object, *, has_bridge: bool) -> Stdio | None:
    """Return the stdio server to run, or None if the ToolServer is not one. Raises CannotRunServer.

    `has_bridge` is whether the operator has an image with the bridge.
    """
    try:
        spec = ToolServerSpec.model_validate(body.get("spec") or {})
    except ValidationError as error:
        text = "; ".join(f"spec.{problem.field}: {problem.message}" for problem in field_errors(error, ToolServerSpec))
        raise CannotRunServer(ServerReason.INVALID_SPEC, text) from error
    if spec.stdio is None:
        return None
    if not has_bridge:
        message = "the operator has no image with the bridge; set MCP_EXEC_SERVERS_IMAGE"
        raise CannotRunServer(ServerReason.NO_SERVERS_IMAGE, message)
    try:
        parse_quantity(spec.stdio.data_size or "0")
    except ValueError as error:
        raise CannotRunServer(ServerReason.INVALID_SPEC, f"spec.stdio.dataSize: {error}") from error
    if reserved := reserved_variables(spec.stdio):
        message = f"spec.stdio.env: {', '.join(reserved)}: the prefix MCP_EXEC_ is reserved for the bridge"
        raise CannotRunServer(ServerReason.INVALID_SPEC, message)
    return spec.stdio
