"""What the API server may change in a sandbox pod, and what nobody may."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from tests.unit.operator.test_pod_manifest import POOL, build

from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_operator.core.pods.authenticity import Alterations
from mcp_exec_operator.core.pods.integrity import ChangeableParts, digest_confinement, find_alterations, find_changes
from mcp_exec_operator.core.pods.manifest import PodIdentity, build_pod
from mcp_exec_operator.core.pods.pod import Pod, PodState

Object = dict[str, Any]
REQUESTED = build(runtimeClassName="gvisor").body


def stored() -> Object:
    """Return the pod as an API server stores it, with defaults and what clusters assign."""
    pod = deepcopy(REQUESTED)
    pod["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    pod["metadata"]["annotations"] |= {
        "kubernetes.io/limit-ranger": "set",
        "kubernetes.io/psp": "restricted",
        # before Kubernetes 1.27
        "seccomp.security.alpha.kubernetes.io/pod": "runtime/default",
        "container.seccomp.security.alpha.kubernetes.io/sandbox": "runtime/default",
        "k8s.v1.cni.cncf.io/network-status": "[]",
        "cni.projectcalico.org/podIP": "10.0.0.1/32",
    }
    pod["metadata"]["labels"]["topology.kubernetes.io/zone"] = "a"
    spec = pod["spec"]
    spec |= {
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "schedulerName": "default-scheduler",
        "nodeName": "n1",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "overhead": {"memory": "10Mi"},
        "nodeSelector": {"zone": "a"},
        "imagePullSecrets": [{"name": "registry"}],
    }
    spec["tolerations"].append({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"})
    spec["securityContext"] |= {"fsGroup": 1, "seLinuxOptions": {"level": "s0:c1,c2"}}
    spec["volumes"][0]["emptyDir"] = {"sizeLimit": "256Mi", "medium": "Memory"}
    container = spec["containers"][0]
    container |= {"terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "Always"}
    container["resources"]["limits"]["cpu"] = "1000m"
    container["securityContext"]["procMount"] = "Default"
    del spec["hostNetwork"], spec["hostPID"], spec["hostIPC"]
    return pod


def test_defaults_and_what_clusters_assign_are_no_changes() -> None:
    assert find_changes(REQUESTED, stored()) == ()


def test_a_user_that_the_cluster_assigns_is_no_change_where_none_was_requested() -> None:
    pod = PodIdentity(name="default-abc", token_sha256="digest", uid=None)
    spec = SandboxPoolSpec(image="a")
    requested = build_pod(spec=spec, pool=POOL, pod=pod, template_hash="").body
    for context in (requested["spec"]["securityContext"], requested["spec"]["containers"][0]["securityContext"]):
        assert "runAsUser" not in context
        assert context["runAsNonRoot"] is True
    assigned = deepcopy(requested)
    assigned["spec"]["securityContext"] |= {"fsGroup": 1000680000, "seLinuxOptions": {"level": "s0:c26,c10"}}
    assigned["spec"]["containers"][0]["securityContext"]["runAsUser"] = 1000680000
    assert find_changes(requested, assigned) == ()
    assigned["spec"]["containers"][0]["securityContext"]["runAsNonRoot"] = False
    assert find_changes(requested, assigned) == ("spec.containers[0].securityContext.runAsNonRoot",)
    other = stored()
    other["spec"]["containers"][0]["securityContext"]["runAsUser"] = 1000680000
    assert find_changes(REQUESTED, other) == ("spec.containers[0].securityContext.runAsUser",)


DIGEST = "@sha256:" + "a" * 64


def with_image(pod: Object, image: str) -> Object:
    pod["spec"]["containers"][0]["image"] = image
    return pod


@pytest.mark.parametrize(
    ("requested", "found"),
    [
        ("registry.example:5000/team/sandbox:1", "registry.example:5000/team/sandbox:1" + DIGEST),
        ("registry.example:5000/team/sandbox:1", "registry.example:5000/team/sandbox" + DIGEST),
        ("sandbox", "sandbox:latest" + DIGEST),
    ],
)
def test_the_digest_of_the_requested_image_is_no_change(requested: str, found: str) -> None:
    assert find_changes(with_image(deepcopy(REQUESTED), requested), with_image(stored(), found)) == ()


@pytest.mark.parametrize(
    ("requested", "found"),
    [
        ("team/sandbox:1", "team/sandbox:2" + DIGEST),
        ("team/sandbox:1", "other/sandbox:1" + DIGEST),
        ("team/sandbox:1", "mirror.example/team/sandbox:1" + DIGEST),
        ("team/sandbox:1", "team/sandbox"),
        ("team/sandbox:1", "team/sandbox:1@sha256:short"),
        ("team/sandbox:1" + DIGEST, "team/sandbox:1@sha256:" + "b" * 64),
        ("team/sandbox:1" + DIGEST, "team/sandbox:1"),
    ],
)
def test_another_image_is_a_change(requested: str, found: str) -> None:
    changed = find_changes(with_image(deepcopy(REQUESTED), requested), with_image(stored(), found))
    assert changed == ("spec.containers[0].image",)


CHANGES: dict[str, Callable[[Object], object]] = {
    "metadata.labels.mcp-exec.dev/pool": lambda pod: pod["metadata"]["labels"].pop("mcp-exec.dev/pool"),
    "metadata.annotations.container.apparmor.security.beta.kubernetes.io/sandbox": lambda pod: pod["metadata"][
        "annotations"
    ].update({"container.apparmor.security.beta.kubernetes.io/sandbox": "unconfined"}),
    "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod": lambda pod: pod["metadata"]["annotations"].update(
        {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}
    ),
    "metadata.annotations.k8s.v1.cni.cncf.io/networks": lambda pod: pod["metadata"]["annotations"].update(
        {"k8s.v1.cni.cncf.io/networks": "other"}
    ),
    "spec.automountServiceAccountToken": lambda pod: pod["spec"].pop("automountServiceAccountToken"),
    "spec.enableServiceLinks": lambda pod: pod["spec"].update(enableServiceLinks=True),
    "spec.serviceAccountName": lambda pod: pod["spec"].update(serviceAccountName="admin"),
    "spec.runtimeClassName": lambda pod: pod["spec"].update(runtimeClassName="runc"),
    "spec.hostPID": lambda pod: pod["spec"].update(hostPID=True),
    "spec.hostUsers": lambda pod: pod["spec"].update(hostUsers=True),
    "spec.shareProcessNamespace": lambda pod: pod["spec"].update(shareProcessNamespace=True),
    "spec.dnsPolicy": lambda pod: pod["spec"].update(dnsPolicy="ClusterFirst"),
    "spec.hostAliases": lambda pod: pod["spec"].update(hostAliases=[{"ip": "1.1.1.1"}]),
    "spec.ephemeralContainers": lambda pod: pod["spec"].update(ephemeralContainers=[{"name": "debug"}]),
    "spec.restartPolicy": lambda pod: pod["spec"].update(restartPolicy="Always"),
    "spec.securityContext.runAsUser": lambda pod: pod["spec"]["securityContext"].update(runAsUser=0),
    "spec.securityContext.sysctls": lambda pod: pod["spec"]["securityContext"].update(sysctls=[{"name": "a"}]),
    "spec.securityContext.seLinuxOptions": lambda pod: pod["spec"]["securityContext"].update(
        seLinuxOptions={"type": "spc_t"}
    ),
    "spec.volumes.workspace": lambda pod: pod["spec"]["volumes"][0].update(emptyDir={"medium": ""}),
    "spec.volumes.host": lambda pod: pod["spec"]["volumes"].append({"name": "host", "hostPath": {"path": "/"}}),
    "spec.containers[0].image": lambda pod: pod["spec"]["containers"][0].update(image="mirror/sandbox"),
    "spec.containers[0].command": lambda pod: pod["spec"]["containers"][0].update(command=["sh"]),
    "spec.containers[0].env": lambda pod: pod["spec"]["containers"][0]["env"].append({"name": "LD_PRELOAD"}),
    "spec.containers[0].envFrom": lambda pod: pod["spec"]["containers"][0].update(envFrom=[{"secretRef": {}}]),
    "spec.containers[0].lifecycle": lambda pod: pod["spec"]["containers"][0].update(lifecycle={"postStart": {}}),
    "spec.containers[0].livenessProbe": lambda pod: pod["spec"]["containers"][0].update(livenessProbe={"exec": {}}),
    "spec.containers[0].ports": lambda pod: pod["spec"]["containers"][0]["ports"][0].update(hostPort=80),
    "spec.containers[0].securityContext.allowPrivilegeEscalation": lambda pod: pod["spec"]["containers"][0][
        "securityContext"
    ].pop("allowPrivilegeEscalation"),
    "spec.containers[0].securityContext.runAsUser": lambda pod: pod["spec"]["containers"][0]["securityContext"].update(
        runAsUser=0
    ),
    "spec.containers[0].securityContext.procMount": lambda pod: pod["spec"]["containers"][0]["securityContext"].update(
        procMount="Unmasked"
    ),
    "spec.containers[0].volumeMounts.tmp:/tmp": lambda pod: pod["spec"]["containers"][0]["volumeMounts"][1].update(
        mountPropagation="Bidirectional"
    ),
    "spec.containers[1].name": lambda pod: pod["spec"]["containers"].append({"name": "sidecar"}),
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_change_of_what_confines_a_sandbox_is_named(field: str) -> None:
    pod = stored()
    CHANGES[field](pod)
    assert find_changes(REQUESTED, pod) == (field,)


def test_only_a_few_fields_are_named() -> None:
    pod = stored()
    pod["spec"]["containers"] += [{"name": f"c{number}"} for number in range(100)]
    assert len(find_changes(REQUESTED, pod)) == 8


def settle(pod: Object) -> Object:
    """Change what clusters and operators change in a pod after its creation."""
    pod = deepcopy(pod)
    pod["metadata"]["labels"] |= {"topology.kubernetes.io/region": "r", "mcp-exec.dev/state": "busy"}
    pod["metadata"]["labels"] |= {"mcp-exec.dev/execution": "e", "mcp-exec.dev/session": "s", "mcp-exec.dev/owner": "o"}
    pod["spec"]["containers"][0]["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]
    pod["spec"]["nodeName"] = "n2"
    return pod


def test_what_clusters_and_operators_change_later_is_no_alteration() -> None:
    before, after = stored(), settle(stored())
    assert find_alterations(ChangeableParts.of(before), ChangeableParts.of(after)) == ()
    assert digest_confinement(after) == digest_confinement(before)


@pytest.mark.parametrize("field", [field for field in CHANGES if not field.startswith("metadata.annotations")])
def test_a_later_change_of_what_confines_a_sandbox_breaks_its_seal(field: str) -> None:
    pod = stored()
    CHANGES[field](pod)
    assert digest_confinement(pod) != digest_confinement(stored())


def test_a_later_change_of_the_limits_is_named() -> None:
    pod = stored()
    pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = "64Gi"
    parts = ChangeableParts.of(pod)
    assert find_alterations(ChangeableParts.of(stored()), parts) == ("spec.containers[0].resources",)
    assert digest_confinement(pod) != digest_confinement(stored())


def test_altered_pods_are_reported_for_ten_minutes_and_at_most_sixteen() -> None:
    now = [1000.0]
    found = Alterations(pool="default", clock=lambda: now[0])
    for number in range(20):
        found.note(Pod(name=f"pod-{number:02}", state=PodState.WARM), ("spec.resources",))
    assert found.describe().count("spec.resources") == 16
    assert found.expire(now[0]) == 1600
    assert found.expire(1600) is None
    assert found.describe() == ""
