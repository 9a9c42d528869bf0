"""The other tests' measure of pods: it refuses each thing that Kubernetes refuses."""

from typing import Any

import pytest
from tests.support.pod_security import pods_of, violations

CONTEXT: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(context: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "securityContext": CONTEXT | (context or {})}], **spec}


def test_a_pod_that_gives_up_everything_is_admitted() -> None:
    volumes = [{"name": "tmp", "emptyDir": {}}]
    assert violations(pod(volumes=volumes)) == []
    for kind in ("DaemonSet", "Deployment", "Job"):
        assert pods_of({"kind": kind, "spec": {"template": {"spec": pod()}}}) == [pod()]
    assert pods_of({"kind": "Pod", "spec": pod()}) == [pod()]
    assert pods_of({"kind": "Service", "spec": {}}) == []


@pytest.mark.parametrize(
    "context",
    [
        {"privileged": True},
        {"allowPrivilegeEscalation": None},
        {"capabilities": {}},
        {"capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]}},
        {"runAsNonRoot": None},
        {"runAsUser": 0},
        {"seccompProfile": None},
        {"seccompProfile": {"type": "Unconfined"}},
        {"procMount": "Unmasked"},
    ],
)
def test_each_thing_that_a_container_keeps_is_refused(context: dict[str, Any]) -> None:
    assert len(violations(pod(context))) == 1


@pytest.mark.parametrize(
    "spec",
    [
        {"hostNetwork": True},
        {"hostPID": True},
        {"hostIPC": True},
        {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
        {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
        {"initContainers": [{"name": "first", "securityContext": {**CONTEXT, "privileged": True}}]},
    ],
)
def test_each_part_of_the_node_that_a_pod_wants_is_refused(spec: dict[str, Any]) -> None:
    assert len(violations(pod(**spec))) == 1
