"""Manifests of stdio servers, and their status by the state of their pods."""

from copy import deepcopy
from typing import Any

import pytest
from tests.support.pod_security import violations

from mcp_exec_api.tool_server import Stdio
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.pods.integrity import find_changes
from mcp_exec_operator.core.pods.network_policy import ReleasePods
from mcp_exec_operator.features.tools.manifests import (
    ANNOTATION_TOKEN,
    BridgeImage,
    ServerIdentity,
    build_deployment,
    build_server_policy,
    build_workload,
    secret_names,
    workload_name,
)

SERVER = ServerIdentity(namespace="agents", name="git", uid="u-1")
BRIDGE = BridgeImage(image="example.invalid/servers:1")


def stdio(**changes: Any) -> Stdio:
    return Stdio.model_validate({"image": "example.invalid/git:1", "command": ["mcp-server-git"]} | changes)


def pod_of(given: Stdio, secrets: str = "") -> Object:
    made = build_deployment(server=SERVER, stdio=given, bridge=BRIDGE, secrets=secrets)
    spec: Object = made["spec"]["template"]["spec"]
    return spec


def test_a_servers_pod_has_no_rights_and_no_token() -> None:
    pod = pod_of(stdio())
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*pod["initContainers"], *pod["containers"]]:
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
        assert container["resources"]["limits"]["memory"]
    assert violations(pod) == []
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in pod["containers"][0]["volumeMounts"]}
    assert mounts == {"/mcp-exec": True, "/mcp-exec-token": True, "/tmp": False}


def test_the_bridge_reads_the_digest_that_the_pods_annotation_has_at_the_time() -> None:
    made = build_deployment(server=SERVER, stdio=stdio(), bridge=BRIDGE, secrets="")
    template = made["spec"]["template"]
    assert ANNOTATION_TOKEN not in template["metadata"]["annotations"]  # each pod has its own, from the operator
    (volume,) = [each for each in template["spec"]["volumes"] if each["name"] == "token"]
    (item,) = volume["downwardAPI"]["items"]
    assert item["fieldRef"] == {"fieldPath": f"metadata.annotations['{ANNOTATION_TOKEN}']"}
    container = template["spec"]["containers"][0]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "token"]
    # the kubelet does not change a mount by `subPath`
    assert mount == {"name": "token", "mountPath": "/mcp-exec-token", "readOnly": True}
    path = f"{mount['mountPath']}/{item['path']}"
    assert {"name": "MCP_EXEC_TOKEN_FILE", "value": path} in container["env"]


def test_the_bridge_starts_the_command_and_its_own_variables_win() -> None:
    container = pod_of(stdio(command=["npx", "server"], maxSessions=3))["containers"][0]
    assert container["command"] == ["python3", "/mcp-exec/bridge.py", "serve", "--", "npx", "server"]
    assert {"name": "MCP_EXEC_MAX_SESSIONS", "value": "3"} in container["env"]


def test_a_server_may_have_data_and_a_runtime_class() -> None:
    pod = pod_of(stdio(dataSize="1Gi", runtimeClassName="gvisor"))
    assert pod["runtimeClassName"] == "gvisor"
    assert {"name": "data", "emptyDir": {"sizeLimit": "1Gi"}} in pod["volumes"]
    limits = pod["containers"][0]["resources"]["limits"]
    assert int(limits["ephemeral-storage"]) == (1024 + 512) * 1024**2
    assert {"name": "data", "mountPath": "/data"} in pod["containers"][0]["volumeMounts"]


def test_a_servers_image_may_be_in_a_registry_that_wants_credentials() -> None:
    pod = pod_of(stdio(imagePullSecrets=[{"name": "registry"}, {"name": "other"}]))
    assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "other"}]
    assert "imagePullSecrets" not in pod_of(stdio())


def test_credentials_of_the_bridges_image_are_added_to_those_of_the_server() -> None:
    bridge = BridgeImage(image="example.invalid/servers:1", pull_secrets=("company", "own"))
    given = stdio(imagePullSecrets=[{"name": "own"}])
    made = build_deployment(server=SERVER, stdio=given, bridge=bridge, secrets="")
    assert made["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "own"}, {"name": "company"}]


def test_a_cluster_may_assign_the_user_of_a_server() -> None:
    made = build_deployment(server=SERVER, stdio=stdio(), bridge=BRIDGE, secrets="", assign_user=False)
    template = made["spec"]["template"]
    assert template["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = deepcopy(template)
    for container in pod["spec"]["initContainers"] + pod["spec"]["containers"]:
        container["securityContext"]["runAsUser"] = 1000680000
    assert find_changes(template, pod) == ()


def test_secrets_are_referred_to_and_never_copied() -> None:
    given = stdio(env=[{"name": "TOKEN", "secretKeyRef": {"name": "git", "key": "token"}}, {"name": "A", "value": "b"}])
    assert secret_names(given) == ["git"]
    variables = {each["name"]: each for each in pod_of(given)["containers"][0]["env"]}
    assert variables["TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "git", "key": "token"}}
    assert variables["A"]["value"] == "b"


@pytest.mark.parametrize("name", ["git", "a" * 253, "docs.example.com", "a" * 60 + ".b", "a-" * 40 + "z"])
def test_a_servers_objects_have_names_that_a_service_may_have(name: str) -> None:
    made = workload_name(name)
    assert len(made) <= 63
    assert made.replace("-", "").isalnum()
    assert made[0].isalpha()
    assert made[-1].isalnum()


def test_names_that_look_alike_stay_apart() -> None:
    assert len({workload_name(name) for name in ("a.b", "a-b", "a.b.c", "a-b.c")}) == 4


def test_the_broker_alone_reaches_a_server_and_it_reaches_what_its_spec_says() -> None:
    egress = [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]
    policy = build_server_policy(
        server=SERVER, stdio=stdio(egress=egress), release=ReleasePods(namespace="mcp-exec-system", instance="one")
    )
    (rule,) = policy["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8083}]
    assert rule["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "broker"
    assert policy["spec"]["egress"] == egress
    assert build_server_policy(server=SERVER, stdio=stdio(), release=ReleasePods(namespace="x"))["spec"]["egress"] == []


def pod(**status: Any) -> Object:
    metadata = {"name": "ts-git-1", "uid": "u-2", "creationTimestamp": "2026-11-22T06:00:00Z"}
    return {"metadata": metadata, "status": status}


def waiting(message: str) -> Object:
    return pod(containerStatuses=[{"state": {"waiting": {"reason": "CreateContainerConfigError", "message": message}}}])


CRASHED = {
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
    "lastState": {"terminated": {"reason": "Error", "exitCode": 2, "message": "no such command"}},
}
RANGE = {"type": "ReplicaFailure", "status": "True", "message": "maximum memory usage per Container is 1Gi"}
QUOTA = {"type": "ReplicaFailure", "status": "True", "message": 'pods "x" is forbidden: exceeded quota: sandboxes'}


@pytest.mark.parametrize(
    ("deployment", "pods", "reason", "words"),
    [
        ({}, [], "Starting", "not ready yet"),
        ({"conditions": [QUOTA]}, [], "QuotaExceeded", "exceeded quota"),
        ({"conditions": [RANGE]}, [], "LimitRangeExceeded", "usage per Container"),
        ({}, [pod(containerStatuses=[CRASHED])], "CrashLoop", "exit code 2: no such command"),
        (
            {},
            [pod(initContainerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull", "message": "gone"}}}])],
            "ImagePullFailed",
            "gone",
        ),
        (
            {},
            [pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}])],
            "Unschedulable",
            "0/1 nodes",
        ),
        (
            {},
            [pod(containerStatuses=[{"state": {"waiting": {"reason": "CreateContainerConfigError", "message": "x"}}}])],
            "ContainerNotStarted",
            "CreateContainerConfigError: x",
        ),
        ({}, [waiting('secret "keys" not found')], "SecretNotFound", '"keys"'),
        ({}, [waiting("couldn't find key token in Secret agents/keys")], "SecretKeyNotFound", "key token"),
    ],
)
def test_a_workload_says_why_it_is_not_ready(deployment: Object, pods: list[Object], reason: str, words: str) -> None:
    made = build_deployment(server=SERVER, stdio=stdio(), bridge=BRIDGE, secrets="")
    found = build_workload(made | {"metadata": {"generation": 1}, "status": deployment}, pods)
    assert (found.ready, found.reason) == (False, reason)
    assert words in str(found.message)


def own_pod(name: str, created: str, *, ready: bool = True, ip: str = "10.1.0.1") -> Object:
    template = build_deployment(server=SERVER, stdio=stdio(), bridge=BRIDGE, secrets="")["spec"]["template"]
    metadata = {**template["metadata"], "name": name, "uid": f"uid-{name}", "creationTimestamp": created}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": metadata, "spec": template["spec"], "status": {"podIP": ip, "conditions": conditions}}


def test_the_oldest_ready_pod_of_the_template_is_called_whoever_adds_others() -> None:
    made = build_deployment(server=SERVER, stdio=stdio(), bridge=BRIDGE, secrets="")
    pods = [
        own_pod("later", "2026-11-22T08:00:00Z", ip="10.1.0.3"),
        own_pod("own", "2026-11-22T07:00:00Z", ip="10.1.0.2"),
        own_pod("starting", "2026-11-22T06:00:00Z", ready=False),
        pod(podIP="10.6.6.6", conditions=[{"type": "Ready", "status": "True"}]),
    ]
    found = build_workload(made, pods)
    assert (found.ready, found.address, found.pod_uid) == (True, "10.1.0.2:8083", "uid-own")
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-22T09:00:00Z"
    assert build_workload(made, pods).address == "10.1.0.3:8083"
