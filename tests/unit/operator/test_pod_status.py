"""State of a pod from its object, and reasons of refused pods."""

from typing import Any

import pytest

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_operator.core.pods.status import is_unready, loss_of, refusal_of, starting_problem


def pod(**status: Any) -> Any:
    return {"metadata": {"name": "p"}, "status": status}


def waiting(reason: str, message: str = "") -> Any:
    return [{"state": {"waiting": {"reason": reason, "message": message}}}]


def disrupted(reason: str) -> Any:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason}]


def terminated(**fields: Any) -> Any:
    return [{"state": {"terminated": fields}}]


@pytest.mark.parametrize(
    ("found", "reason", "held"),
    [
        (pod(), None, False),
        (pod(phase="Pending", containerStatuses=waiting("ContainerCreating")), None, False),
        (pod(phase="Running", containerStatuses=[{"state": {"running": {}}}]), None, False),
        (pod(phase="Pending", containerStatuses=waiting("ErrImagePull")), "ImagePullFailed", True),
        (pod(phase="Pending", containerStatuses=waiting("ImagePullBackOff")), "ImagePullFailed", True),
        (pod(phase="Pending", containerStatuses=waiting("InvalidImageName")), "ImagePullFailed", True),
        (pod(phase="Pending", containerStatuses=waiting("ErrImageNeverPull")), "ImagePullFailed", True),
        (pod(phase="Pending", containerStatuses=waiting("CreateContainerError")), "PodFailed", False),
        (pod(phase="Pending", containerStatuses=waiting("RunContainerError")), "PodFailed", False),
        (pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "full"}]), "Unschedulable", True),
        (pod(phase="Failed", containerStatuses=terminated(reason="StartError", exitCode=128)), "PodFailed", False),
        (pod(phase="Running", containerStatuses=terminated(exitCode=1)), "PodFailed", False),
    ],
)
def test_a_pod_that_does_not_start_says_why(found: Any, reason: str | None, held: bool) -> None:
    problem = starting_problem(found)
    assert (problem.reason.value if problem else None) == reason
    assert bool(problem and problem.held) is held


@pytest.mark.parametrize(
    ("logged", "reason", "message"),
    [
        (
            '{"message": "x"}\n{"message": "the module a can\'t be imported", "reason": "PreimportFailed"}\n',
            "PreimportFailed",
            "pod p did not start: the module a can't be imported",
        ),
        ('{"reason": "PreimportFailed"}\nx', "PodFailed", "pod p ended before it was ready: exit code 1"),
        ("[" * 4000, "PodFailed", "pod p ended before it was ready: exit code 1"),
        ('{"reason": ["PreimportFailed"]}', "PodFailed", "pod p ended before it was ready: exit code 1"),
    ],
)
def test_a_module_that_the_sandbox_could_not_import_is_named(logged: str, reason: str, message: str) -> None:
    problem = starting_problem(pod(phase="Failed", containerStatuses=terminated(exitCode=1, message=logged)))
    assert problem is not None
    assert problem.reason == reason
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("found", "reason", "words"),
    [
        (None, "SandboxLost", "is gone"),
        (pod(phase="Failed", containerStatuses=terminated(reason="OOMKilled", exitCode=137)), "OutOfMemory", "memory"),
        (pod(phase="Running", containerStatuses=terminated(reason="OOMKilled")), "OutOfMemory", "memory"),
        (
            pod(phase="Failed", reason="Evicted", message="Pod ephemeral local storage usage exceeds"),
            "StorageLimit",
            "storage",
        ),
        (pod(phase="Failed", reason="Evicted", message='Usage of EmptyDir volume "tmp"'), "StorageLimit", "EmptyDir"),
        (pod(phase="Failed", reason="Evicted", message="low on resource: memory"), "Evicted", "memory"),
        (pod(phase="Failed", reason="NodeLost"), "NodeLost", "NodeLost"),
        (pod(phase="Failed", reason="Terminated", message="imminent node shutdown"), "NodeLost", "shutdown"),
        (pod(phase="Failed", conditions=disrupted("DeletionByPodGC")), "NodeLost", "DeletionByPodGC"),
        (pod(phase="Running", conditions=disrupted("EvictionByEvictionAPI")), "Evicted", "EvictionByEvictionAPI"),
        (pod(phase="Failed"), "SandboxLost", "phase Failed"),
        (pod(phase="Succeeded", containerStatuses=terminated(exitCode=0)), "SupervisorDied", "exit code 0"),
        (
            pod(phase="Running", containerStatuses=terminated(exitCode=137)),
            "SupervisorDied",
            "killed, as the kernel does if memory",
        ),
        ({"metadata": {"name": "p", "deletionTimestamp": "x"}, "status": {}}, "SandboxLost", "deleted"),
        (pod(phase="Running"), "StreamBroken", "does not answer"),
    ],
)
def test_a_lost_pod_says_why(found: Any, reason: str, words: str) -> None:
    problem = loss_of(found, name="p")
    assert problem.reason == reason
    assert words in problem.message


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "NodeLost"),
        (pod(phase="Running"), "NodeLost"),
        ({"metadata": {"name": "p", "deletionTimestamp": "x"}, "status": {}}, "NodeLost"),
        (pod(phase="Failed", containerStatuses=terminated(reason="OOMKilled", exitCode=137)), "OutOfMemory"),
        (pod(phase="Failed", reason="Evicted", message="low on resource: memory"), "Evicted"),
    ],
)
def test_a_pod_on_a_lost_node_is_lost_with_it_unless_it_was_killed_before(found: Any, reason: str) -> None:
    assert loss_of(found, name="p", node_loss="node n1 is not ready").reason == reason


def test_a_pod_that_is_deleted_from_a_cordoned_node_is_evicted() -> None:
    deleted = {"metadata": {"name": "p", "deletionTimestamp": "x"}, "status": {}}
    assert loss_of(deleted, name="p", drained=True).reason == "Evicted"


@pytest.mark.parametrize(
    ("found", "unready"),
    [
        (pod(phase="Running"), False),
        (pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}]), False),
        (pod(phase="Running", conditions=[{"type": "Ready", "status": "False"}]), True),
        (pod(phase="Running", containerStatuses=[{"restartCount": 1, "state": {"running": {}}}]), True),
        (pod(phase="Pending", conditions=[{"type": "Ready", "status": "False"}]), False),
    ],
)
def test_a_running_pod_that_is_not_ready_or_runs_anew_is_not_to_be_used(found: Any, unready: bool) -> None:
    assert is_unready(found) is unready


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        (403, 'pod rejected: RuntimeClass "x" not found', "RuntimeClassNotFound"),
        (403, "exceeded quota: q, requested: pods=1", "QuotaExceeded"),
        (403, "failed quota: q: must specify limits.cpu", "QuotaExceeded"),
        (403, "minimum cpu usage per Container is 1, but request is 50m", "LimitRangeExceeded"),
        (403, "maximum memory usage per Pod is 1Gi", "LimitRangeExceeded"),
        (403, "cpu max limit to request ratio per Container is 2, but provided ratio is 4", "LimitRangeExceeded"),
        (403, 'User "x" cannot create resource "pods"', "PodRefused"),
        (422, "spec.containers[0].image: Required value", "PodRefused"),
        (500, "etcdserver: request timed out", "PoolUnavailable"),
        (0, "no connection", "PoolUnavailable"),
    ],
)
def test_a_refusal_has_a_reason(code: int, message: str, reason: str) -> None:
    assert refusal_of(ApiError(code=code, message=message)).reason == reason
