"""The manifests of sandbox pods."""

from typing import Any

import pytest
from tests.support.pod_security import violations

from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_operator.cluster.preflight import find_forbidden_addresses
from mcp_exec_operator.core.pods.manifest import (
    IsolationAddresses,
    PodIdentity,
    PodManifest,
    PoolIdentity,
    build_pod,
    busy_patch,
    label_value,
    template_hash,
)

POOL = PoolIdentity(namespace="agents", name="default", uid="pool-uid")
POD = PodIdentity(name="default-abc", token_sha256="digest", uid=123456)


def build(template: dict[str, Any] | None = None, **spec: Any) -> PodManifest:
    given = {"image": "sandbox:1", "template": template or {}, **spec}
    return build_pod(spec=SandboxPoolSpec.model_validate(given), pool=POOL, pod=POD, template_hash="h")


def container_of(manifest: PodManifest) -> dict[str, Any]:
    containers = manifest.body["spec"]["containers"]
    assert len(containers) == 1
    found: dict[str, Any] = containers[0]
    return found


def test_a_pod_is_confined() -> None:
    spec = build().body["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert (spec["dnsPolicy"], spec["dnsConfig"]) == ("None", {"nameservers": ["127.0.0.1"]})
    assert (spec["hostNetwork"], spec["hostPID"], spec["hostIPC"]) == (False, False, False)
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Never", 1)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    context = container_of(build())["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"], context["runAsGroup"]) == (True, 123456, 123456)
    assert (context["allowPrivilegeEscalation"], context["privileged"]) == (False, False)
    assert (context["capabilities"], context["readOnlyRootFilesystem"]) == ({"drop": ["ALL"]}, True)
    assert violations(spec) == []


def test_a_pod_has_limits_on_everything() -> None:
    manifest = build()
    assert set(container_of(manifest)["resources"]["limits"]) == {"cpu", "memory", "ephemeral-storage"}
    assert [volume["emptyDir"] for volume in manifest.body["spec"]["volumes"]] == [
        {"sizeLimit": "256Mi", "medium": "Memory"}
    ] * 2


def test_files_of_a_pod_can_be_on_the_disk_of_its_node() -> None:
    volumes = build(workspaceMedium="Disk").body["spec"]["volumes"]
    assert [volume["emptyDir"] for volume in volumes] == [{"sizeLimit": "256Mi"}] * 2


def test_a_pod_is_told_its_limits_and_no_token() -> None:
    variables = {
        each["name"]: each["value"] for each in container_of(build(resources={"limits": {"cpu": "1500m"}}))["env"]
    }
    assert variables["MCP_EXEC_TOKEN_SHA256"] == "digest"
    assert variables["MCP_EXEC_MEMORY_BYTES"] == str(768 * 2**20)
    assert variables["MCP_EXEC_STORAGE_BYTES"] == str(256 * 2**20)
    assert (variables["MCP_EXEC_MAX_PROCESSES"], variables["PYTHON_CPU_COUNT"]) == ("64", "2")


def test_a_pod_belongs_to_its_pool() -> None:
    meta = build().body["metadata"]
    assert meta["namespace"] == "agents"
    assert meta["labels"]["mcp-exec.dev/pool"] == "default"
    assert meta["labels"]["mcp-exec.dev/state"] == "warm"
    assert meta["ownerReferences"][0]["uid"] == "pool-uid"
    assert meta["ownerReferences"][0]["controller"] is True


def test_a_pod_leaves_a_lost_node_soon_unless_the_pool_says_otherwise() -> None:
    assert [each["tolerationSeconds"] for each in build().body["spec"]["tolerations"]] == [10, 10]
    own = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 99,
    }
    found = build(tolerations=[own]).body["spec"]["tolerations"]
    assert [each["tolerationSeconds"] for each in found] == [99, 10]


def test_the_pods_of_a_pool_are_spread_over_the_nodes_unless_its_template_spreads_them() -> None:
    [constraint] = build().body["spec"]["topologySpreadConstraints"]
    assert (constraint["topologyKey"], constraint["maxSkew"]) == ("kubernetes.io/hostname", 1)
    # on a cluster that has no other room, one node takes them all
    assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
    assert constraint["labelSelector"]["matchLabels"].items() <= build().body["metadata"]["labels"].items()
    assert constraint["labelSelector"]["matchLabels"]["mcp-exec.dev/pool"] == POOL.name
    own = [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    manifest = build({"spec": {"topologySpreadConstraints": own}})
    assert (manifest.body["spec"]["topologySpreadConstraints"], manifest.refused) == (own, ())


@pytest.mark.parametrize(
    ("spec", "path", "value"),
    [
        ({"runtimeClassName": "gvisor"}, "runtimeClassName", "gvisor"),
        ({"nodeSelector": {"a": "b"}}, "nodeSelector", {"a": "b"}),
        ({"imagePullSecrets": [{"name": "s"}]}, "imagePullSecrets", [{"name": "s"}]),
        ({"priorityClassName": "low"}, "priorityClassName", "low"),
        ({"affinity": {"nodeAffinity": {}}}, "affinity", {"nodeAffinity": {}}),
    ],
)
def test_scheduling_fields_of_the_pool_reach_the_pod(spec: dict[str, Any], path: str, value: Any) -> None:
    manifest = build(**spec)
    assert manifest.body["spec"][path] == value
    assert manifest.refused == ()


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"topologySpreadConstraints": [{"maxSkew": 1}]}},
        {"spec": {"schedulerName": "mine"}},
        {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}},
        {"spec": {"nodeSelector": {"zone": "a"}}},
        {"spec": {"containers": [{"name": "sandbox", "env": [{"name": "TZ", "value": "UTC"}]}]}},
        {"spec": {"containers": [{"name": "sandbox", "resources": {"limits": {"memory": "1Gi"}}}]}},
        {
            "spec": {
                "volumes": [{"name": "data", "emptyDir": {}}],
                "containers": [{"name": "sandbox", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            }
        },
        {"metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}},
        {"spec": {"hostNetwork": False, "securityContext": {"runAsNonRoot": True}}},
    ],
)
def test_a_harmless_template_is_honoured(template: dict[str, Any]) -> None:
    assert build(template).refused == ()


@pytest.mark.parametrize(
    ("template", "refused"),
    [
        ({"spec": {"hostNetwork": True}}, "spec.hostNetwork"),
        ({"spec": {"hostPID": True}}, "spec.hostPID"),
        ({"spec": {"hostIPC": True}}, "spec.hostIPC"),
        ({"spec": {"hostAliases": [{"ip": "1.1.1.1"}]}}, "spec.hostAliases"),
        ({"spec": {"nodeName": "n"}}, "spec.nodeName"),
        ({"spec": {"serviceAccountName": "admin"}}, "spec.serviceAccountName"),
        ({"spec": {"automountServiceAccountToken": True}}, "spec.automountServiceAccountToken"),
        ({"spec": {"dnsPolicy": "ClusterFirst"}}, "spec.dnsPolicy"),
        ({"spec": {"shareProcessNamespace": True}}, "spec.shareProcessNamespace"),
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
        ({"spec": {"runtimeClassName": "none"}}, "spec.runtimeClassName"),
        ({"spec": {"initContainers": [{"name": "i", "image": "x"}]}}, "spec.initContainers"),
        ({"spec": {"ephemeralContainers": [{"name": "e"}]}}, "spec.ephemeralContainers"),
        ({"spec": {"containers": [{"name": "other", "image": "x"}]}}, "spec.containers[0]"),
        ({"spec": {"securityContext": {"runAsUser": 0}}}, "spec.securityContext.runAsUser"),
        ({"spec": {"securityContext": {"sysctls": [{"name": "a"}]}}}, "spec.securityContext.sysctls"),
        ({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}, "spec.volumes[0]"),
        ({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}}, "spec.volumes[0]"),
        ({"spec": {"volumes": [{"name": "v", "configMap": {"name": "s"}}]}}, "spec.volumes[0]"),
        ({"spec": {"volumes": [{"name": "v", "projected": {}}]}}, "spec.volumes[0]"),
        ({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}, "spec.volumes[0]"),
        (
            {"spec": {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Ti"}}]}},
            "spec.volumes[0].emptyDir.sizeLimit",
        ),
        ({"metadata": {"labels": {"mcp-exec.dev/pool": "other"}}}, "metadata.labels.mcp-exec.dev/pool"),
        (
            {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/sandbox": "unconfined"}}},
            "metadata.annotations.container.apparmor.security.beta.kubernetes.io/sandbox",
        ),
    ],
)
def test_a_template_that_would_weaken_a_pod_is_refused_and_told(template: dict[str, Any], refused: str) -> None:
    manifest = build(template)
    assert refused in manifest.refused
    plain = build().body
    assert manifest.body == plain


@pytest.mark.parametrize(
    "key",
    [
        "sidecar.istio.io/inject",
        "security.istio.io/tlsMode",
        "linkerd.io/inject",
        "config.linkerd.io/skip-outbound-ports",
        "vault.hashicorp.com/agent-inject",
        "consul.hashicorp.com/connect-inject",
        "azure.workload.identity/use",
        "aadpodidbinding",
        "iam.amazonaws.com/role",
        "eks.amazonaws.com/role-arn",
        "iam.gke.io/gcp-service-account",
        "dapr.io/enabled",
        "kuma.io/sidecar-injection",
        "instrumentation.opentelemetry.io/inject-python",
        "admission.datadoghq.com/enabled",
        "unknown.example.com/whatever",
        "run.oci.handler",
        "org.systemd.property.MemoryMax",
        "io.katacontainers.config.hypervisor.path",
    ],
)
@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_a_template_cannot_ask_meshes_injectors_and_identity_webhooks_for_anything(kind: str, key: str) -> None:
    manifest = build({"metadata": {kind: {key: "true"}}})
    assert manifest.refused == (f"metadata.{kind}.{key}",)
    assert manifest.body == build().body


def test_the_installation_may_allow_prefixes_but_none_that_weakens_a_sandbox() -> None:
    annotations = {"cost.example.com/team": "a", "dev.gvisor.flag.debug": "x", "dev.gvisor.x/a": "b", "note": "c"}
    labels = {"cost.example.com/team": "a", "mcp-exec.dev/pool": "other", "sub.cost.example.com/team": "b"}
    spec = SandboxPoolSpec.model_validate(
        {"image": "i", "template": {"metadata": {"annotations": annotations, "labels": labels}}}
    )
    prefixes = ("cost.example.com", "mcp-exec.dev", "dev.gvisor.x")
    manifest = build_pod(spec=spec, pool=POOL, pod=POD, template_hash="h", template_prefixes=prefixes)
    assert manifest.body["metadata"]["labels"].items() >= {"cost.example.com/team": "a"}.items()
    assert manifest.body["metadata"]["annotations"].items() >= {"cost.example.com/team": "a", "note": "c"}.items()
    assert set(manifest.refused) == {
        "metadata.annotations.dev.gvisor.x/a",
        "metadata.labels.mcp-exec.dev/pool",
        "metadata.labels.sub.cost.example.com/team",
        "metadata.annotations.dev.gvisor.flag.debug",
    }


@pytest.mark.parametrize(
    ("container", "refused"),
    [
        ({"securityContext": {"privileged": True}}, "securityContext.privileged"),
        ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "securityContext.capabilities.add"),
        ({"securityContext": {"readOnlyRootFilesystem": False}}, "securityContext.readOnlyRootFilesystem"),
        ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser"),
        ({"securityContext": {"procMount": "Unmasked"}}, "securityContext.procMount"),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "securityContext.seccompProfile.type"),
        ({"command": ["sh"]}, "command"),
        ({"image": "other"}, "image"),
        ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "ports[0]"),
        ({"env": [{"name": "MCP_EXEC_TOKEN_SHA256", "value": "mine"}]}, "env[0].value"),
        ({"env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, "env[0]"),
        ({"env": [{"name": "LD_PRELOAD", "value": "/x"}]}, "env[0]"),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, "envFrom"),
        ({"livenessProbe": {"httpGet": {"port": 1}}}, "livenessProbe"),
        ({"lifecycle": {"postStart": {"exec": {"command": ["x"]}}}}, "lifecycle"),
        ({"volumeMounts": [{"name": "workspace", "mountPath": "/etc"}]}, "volumeMounts[0].mountPath"),
        ({"volumeDevices": [{"name": "d"}]}, "volumeDevices"),
    ],
)
def test_a_sandbox_container_cannot_be_weakened_either(container: dict[str, Any], refused: str) -> None:
    manifest = build({"spec": {"containers": [{"name": "sandbox", **container}]}})
    assert f"spec.containers[0].{refused}" in manifest.refused
    assert manifest.body == build().body


def test_the_memory_that_a_template_gives_is_the_memory_that_is_told() -> None:
    manifest = build({"spec": {"containers": [{"name": "sandbox", "resources": {"limits": {"memory": "1Gi"}}}]}})
    variables = {each["name"]: each["value"] for each in container_of(manifest)["env"]}
    assert container_of(manifest)["resources"]["limits"]["memory"] == "1Gi"
    assert variables["MCP_EXEC_MEMORY_BYTES"] == str(2**30)


def test_the_template_hash_tells_pods_apart_by_what_they_are_like() -> None:
    spec = SandboxPoolSpec(image="a")
    assert template_hash(spec) == template_hash(spec.model_copy(update={"max_pods": 7, "on_empty": "Wait"}))
    assert template_hash(spec) != template_hash(SandboxPoolSpec(image="b"))
    assert template_hash(spec) != template_hash(SandboxPoolSpec(image="a", max_processes=9))
    assert template_hash(spec) != template_hash(SandboxPoolSpec(image="a", log_output=True))
    assert template_hash(spec) != template_hash(SandboxPoolSpec(image="a", preimport=["json"]))


def test_modules_to_import_are_told_to_the_sandboxes_of_pools_that_name_any() -> None:
    def environment(spec: SandboxPoolSpec) -> dict[str, str]:
        body = build_pod(spec=spec, pool=POOL, pod=POD, template_hash="").body
        return {each["name"]: each["value"] for each in body["spec"]["containers"][0]["env"]}

    assert environment(SandboxPoolSpec(image="a", preimport=["pandas", "os.path"]))["MCP_EXEC_PREIMPORT"] == (
        "pandas,os.path"
    )
    assert "MCP_EXEC_PREIMPORT" not in environment(SandboxPoolSpec(image="a"))


def test_extended_resources_are_limits_and_requests() -> None:
    spec = SandboxPoolSpec.model_validate({"image": "a", "resources": {"extended": {"nvidia.com/gpu": 2}}})
    (container,) = build_pod(spec=spec, pool=POOL, pod=POD, template_hash="").body["spec"]["containers"]
    assert container["resources"]["limits"] == {
        "cpu": "1", "memory": "768Mi", "ephemeral-storage": "512Mi", "nvidia.com/gpu": 2
    }  # fmt: skip
    assert container["resources"]["requests"]["nvidia.com/gpu"] == 2


@pytest.mark.parametrize("name", ["gpu", "cpu", "/gpu", "nvidia.com/", "nvidia.com/gpu/1", "x" * 300 + "/gpu"])
def test_what_is_no_extended_resource_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not an extended resource"):
        SandboxPoolSpec.model_validate({"image": "a", "resources": {"extended": {name: 1}}})


def test_a_pod_in_use_keeps_its_owners_and_is_not_evicted() -> None:
    meta = busy_patch(execution_name="hello", pod_uid="u")["metadata"]
    assert meta["labels"] == {"mcp-exec.dev/state": "busy", "mcp-exec.dev/execution": "hello"}
    assert "ownerReferences" not in meta
    assert meta["uid"] == "u"
    assert meta["annotations"] == {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"
    }  # fmt: skip


def test_a_warm_pod_may_be_moved_to_another_node() -> None:
    meta = build_pod(spec=SandboxPoolSpec(image="a"), pool=POOL, pod=POD, template_hash="").body["metadata"]
    assert meta["annotations"] == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}


@pytest.mark.parametrize("name", ["a", "x" * 63, "y" * 64, "z" * 253])
def test_any_name_becomes_a_label_value(name: str) -> None:
    assert len(label_value(name)) <= 63
    assert (label_value(name) == name) == (len(name) <= 63)


def test_a_pod_is_told_what_it_must_not_reach_and_what_it_can() -> None:
    spec = SandboxPoolSpec(image="sandbox:1")
    isolation = IsolationAddresses(forbidden=("10.96.0.1:443", "[fd00::7]:8086"), answering="10.96.3.4:8090")
    manifest = build_pod(spec=spec, pool=POOL, pod=POD, template_hash="h", isolation=isolation)
    values = {each["name"]: each["value"] for each in container_of(manifest)["env"]}
    assert values["MCP_EXEC_FORBIDDEN_ADDRESSES"] == "10.96.0.1:443,[fd00::7]:8086"
    assert values["MCP_EXEC_ANSWERING_ADDRESS"] == "10.96.3.4:8090"
    assert "_ADDRESS" not in str(build().body)


@pytest.mark.parametrize(
    ("server", "own", "forbidden"),
    [
        ("", ["10.0.0.7"], ()),
        ("10.96.0.1:443", ["10.0.0.7"], ("10.96.0.1:443",)),
        ("10.96.0.1:443", ["10.0.0.7", "fd00::7"], ("10.96.0.1:443", "[fd00::7]:8086")),
        ("[fd00::1]:6443", ["fd00::7", "10.0.0.7"], ("[fd00::1]:6443", "10.0.0.7:8086")),
    ],
)
def test_what_a_sandbox_must_not_reach_has_each_family_that_is_known(
    server: str, own: list[str], forbidden: Any
) -> None:
    assert find_forbidden_addresses(server, own_ips=own, own_port=8086) == forbidden
    assert find_forbidden_addresses(server, own_ips=own, own_port=0) == forbidden[:1]


def test_a_pods_last_words_are_kept() -> None:
    assert container_of(build())["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_only_a_pod_of_another_language_is_told_its_language_so_that_all_others_stay_as_they_are() -> None:
    def variables(**spec: Any) -> dict[str, str]:
        return {each["name"]: each["value"] for each in container_of(build(**spec))["env"]}

    assert "MCP_EXEC_LANGUAGE" not in variables()
    assert variables(language="python") == variables()
    assert variables(language="typescript") == {**variables(), "MCP_EXEC_LANGUAGE": "typescript"}
    plain, other = (SandboxPoolSpec(image="sandbox:1", language=each) for each in ("python", "typescript"))
    assert template_hash(plain) == template_hash(SandboxPoolSpec(image="sandbox:1")) != template_hash(other)
