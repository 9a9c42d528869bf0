"""The pods that a benchmark starts in the cluster."""

import inside
from tests.support.pod_security import violations

from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_operator.core.pods.manifest import IsolationAddresses, PodIdentity, PoolIdentity, build_pod

SANDBOX = build_pod(
    spec=SandboxPoolSpec(image="sandbox:1", runtime_class_name="gvisor", node_selector={"disk": "fast"}),
    pool=PoolIdentity(namespace="agents", name="default", uid="pool-uid"),
    pod=PodIdentity(name="default-abc", token_sha256="digest", uid=123456),
    template_hash="h",
    isolation=IsolationAddresses(forbidden=("10.96.0.1:443",), answering="10.0.0.1:53"),
).body
MOUNTED = {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}


def test_a_peer_runs_like_a_sandbox_and_is_in_no_pool() -> None:
    peer = inside.peer_manifest(SANDBOX)
    assert (peer["spec"]["runtimeClassName"], peer["spec"]["nodeSelector"]) == ("gvisor", {"disk": "fast"})
    assert "labels" not in peer["metadata"]
    [theirs], [ours] = SANDBOX["spec"]["containers"], peer["spec"]["containers"]
    assert {name: ours[name] for name in ("image", "resources", "securityContext")} == {
        name: theirs[name] for name in ("image", "resources", "securityContext")
    }
    assert violations(peer["spec"]) == []


def test_a_peer_is_not_told_to_check_an_isolation_that_it_does_not_have() -> None:
    def names(pod: inside.Object) -> set[str]:
        return {each["name"] for each in pod["spec"]["containers"][0]["env"]}

    assert names(SANDBOX) - names(inside.peer_manifest(SANDBOX)) == {
        "MCP_EXEC_FORBIDDEN_ADDRESSES", "MCP_EXEC_ANSWERING_ADDRESS",
    }  # fmt: skip


def test_a_peer_obeys_the_token_of_its_benchmark_and_not_the_pools() -> None:
    environment = inside.peer_manifest(SANDBOX, token_sha256="own")["spec"]["containers"][0]["env"]
    assert [each["value"] for each in environment if each["name"] == "MCP_EXEC_TOKEN_SHA256"] == ["own"]


def test_a_peer_mounts_its_own_volumes_alone() -> None:
    container = SANDBOX["spec"]["containers"][0]
    volumes = [*SANDBOX["spec"]["volumes"], {"name": "token", "projected": {}}]
    mounts = [*container["volumeMounts"], MOUNTED]
    stored = {"spec": SANDBOX["spec"] | {"volumes": volumes, "containers": [container | {"volumeMounts": mounts}]}}
    assert inside.peer_manifest(stored) == inside.peer_manifest(SANDBOX)


def test_a_load_pod_is_confined_and_has_the_key_from_a_secret() -> None:
    pod = inside.load_manifest("operator:1", arguments=["latency.py", "--pool", "a"], gateway="http://10.0.0.1:80")
    assert violations(pod["spec"]) == []
    [container] = pod["spec"]["containers"]
    assert container["command"] == ["python3", "latency.py", "--pool", "a"]
    variables = {each["name"]: each for each in container["env"]}
    assert variables["BENCH_API_KEY"]["valueFrom"]["secretKeyRef"] == {"name": "key", "key": "api-key"}
    token = {"name": "key", "key": "token", "optional": True}
    assert variables[inside.PERSON]["valueFrom"]["secretKeyRef"] == token


def test_a_load_pod_reads_no_secrets_and_starts_nothing_in_the_served_namespace() -> None:
    own, _ = inside.role_manifests("bench-1", own=True)
    served, binding = inside.role_manifests("bench-1", own=False)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "bench", "namespace": "bench-1"}]
    rights = {(resource, verb) for rule in served["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert rights == {("sandboxpools", "get"), ("sandboxpools", "patch"), ("pods", "list")}
    assert "secrets" not in {resource for rule in own["rules"] for resource in rule["resources"]}
