"""What clusters differ in: users, accounts, rights, labels, zones, priorities, images on nodes."""

import re
from typing import Any

import pytest
import yaml
from tests.component.chart.conftest import CHART, Object, Render, Rendered
from tests.support.pod_security import violations

COMPONENTS = ("operator", "gateway", "broker")
EVERYTHING: Object = yaml.safe_load((CHART / "ci" / "full-values.yaml").read_text())


def workloads(rendered: Rendered) -> dict[str, Object]:
    """The pod template of every workload, by kind and name."""
    kinds = ("Deployment", "DaemonSet", "Job")
    return {
        f"{kind}/{each['metadata']['name']}": each["spec"]["template"] for kind in kinds for each in rendered.all(kind)
    }


def test_a_cluster_that_assigns_users_gets_pods_without_one(helm3: Render, helm4: Render) -> None:
    values = {
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "prePull": {"enabled": True},
    }
    for render in (helm3, helm4):
        rendered = render(values)
        templates = workloads(rendered)
        assert len(templates) == 5
        for name, template in templates.items():
            context = template["spec"]["securityContext"]
            assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}, name
            assert violations(template["spec"]) == []
        assert rendered.one("Pod", "mcp-exec-test")["spec"]["securityContext"] == context


def test_security_contexts_can_be_left_out(render: Render) -> None:
    rendered = render({"podSecurityContext": None, "securityContext": None})
    for template in workloads(rendered).values():
        assert "securityContext" not in template["spec"]
        assert "securityContext" not in template["spec"]["containers"][0]


def test_accounts_of_others_get_the_rights_and_none_is_created(render: Render) -> None:
    own = {name: {"serviceAccount": {"create": False, "name": f"our-{name}"}} for name in COMPONENTS}
    rendered = render({**own, "admissionPolicy": {"enabled": True}})
    assert rendered.names("ServiceAccount") == ["mcp-exec-cleanup"]
    named = {
        subject["name"]
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for binding in rendered.all(kind)
        for subject in binding["subjects"]
    }
    assert named == {"our-operator", "our-gateway", "our-broker", "mcp-exec-cleanup"}
    for name in COMPONENTS:
        assert rendered.pods()[f"mcp-exec-{name}"]["serviceAccountName"] == f"our-{name}"
    assert rendered.environment("mcp-exec-operator")["MCP_EXEC_SERVICE_ACCOUNT"] == "our-operator"
    assert "system:serviceaccount:mcp-exec-system:our-gateway" in str(rendered.all("ValidatingAdmissionPolicy"))
    assert "system:serviceaccount:mcp-exec-system:mcp-exec-gateway" not in rendered.text


def test_rights_can_be_left_to_others(render: Render) -> None:
    rendered = render({**EVERYTHING, "rbac": {"create": False}})
    kinds = {item["kind"] for item in rendered.objects}
    assert kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} == set()
    assert {"ServiceAccount", "Namespace", "ValidatingAdmissionPolicy"} <= kinds


def test_common_labels_are_on_all_objects_and_pods_and_replace_none_of_the_charts(render: Render) -> None:
    values = {**EVERYTHING, "extraObjects": [], "prePull": {"enabled": True}, "priorityClass": {"create": True}}
    before = render(values)
    after = render({**values, "commonLabels": {"team": "platform", "app.kubernetes.io/name": "another"}})
    assert len(after.objects) == len(before.objects)
    for item in after.objects:
        labels = item["metadata"]["labels"]
        assert (labels["team"], labels["app.kubernetes.io/name"]) == ("platform", "mcp-exec"), item["metadata"]["name"]
    for name, template in workloads(after).items():
        assert template["metadata"]["labels"]["team"] == "platform", name
    selectors = [each["spec"]["selector"] for each in before.all("Deployment") + before.all("DaemonSet")]
    assert selectors == [each["spec"]["selector"] for each in after.all("Deployment") + after.all("DaemonSet")]


def test_extra_objects_are_templates(render: Render) -> None:
    rendered = render(
        {
            "extraObjects": [
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-one"}},
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-two\n",
            ]
        }
    )
    assert {"mcp-exec-one", "mcp-exec-two"} <= set(rendered.names("ConfigMap"))


@pytest.mark.parametrize("component", COMPONENTS)
def test_pods_are_spread_over_zones_and_nodes(render: Render, component: str) -> None:
    rendered = render()
    deployment = rendered.one("Deployment", f"mcp-exec-{component}")
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert all(each["labelSelector"] == deployment["spec"]["selector"] for each in spread)
    own = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    changed = render({component: {"topologySpreadConstraints": [own]}}).pods()[f"mcp-exec-{component}"]
    assert changed["topologySpreadConstraints"] == [own]
    none = render({component: {"topologySpreadConstraints": []}}).pods()[f"mcp-exec-{component}"]
    assert "topologySpreadConstraints" not in none


def test_a_component_has_its_own_priority_or_that_of_the_release(render: Render) -> None:
    rendered = render({"priorityClass": {"create": True}, "broker": {"priorityClassName": "high"}}, namespace="tools")
    (made,) = rendered.all("PriorityClass")
    assert (made["metadata"]["name"], made["value"]) == ("mcp-exec-control-plane.tools", 1_000_000)
    names = [rendered.pods()[f"mcp-exec-{name}"]["priorityClassName"] for name in COMPONENTS]
    assert names == [made["metadata"]["name"], made["metadata"]["name"], "high"]
    assert render().all("PriorityClass") == []


def test_dns_parameters_are_those_of_the_values(render: Render) -> None:
    config = {"options": [{"name": "ndots", "value": "2"}]}
    pods = render({name: {"dnsConfig": config} for name in COMPONENTS}).pods()
    assert [pods[f"mcp-exec-{name}"]["dnsConfig"] for name in COMPONENTS] == [config] * 3


def test_an_autoscaled_gateway_has_no_fixed_number_of_pods(render: Render) -> None:
    rendered = render({"gateway": {"replicas": 1, "autoscaling": {"enabled": True, "maxReplicas": 7}}})
    spec = rendered.one("HorizontalPodAutoscaler", "mcp-exec-gateway")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 7)
    assert spec["metrics"][0]["resource"]["target"] == {"type": "AverageValue", "averageValue": "500m"}
    assert spec["scaleTargetRef"]["name"] == "mcp-exec-gateway"
    assert "replicas" not in rendered.one("Deployment", "mcp-exec-gateway")["spec"]
    assert "mcp-exec-gateway" in rendered.names("PodDisruptionBudget")
    assert render().all("HorizontalPodAutoscaler") == []
    with pytest.raises(AssertionError, match="minReplicas is 9, which must not be more than maxReplicas, 7"):
        render({"gateway": {"autoscaling": {"enabled": True, "minReplicas": 9, "maxReplicas": 7}}})


def test_images_of_all_pools_are_kept_on_the_nodes_that_match(render: Render) -> None:
    gpu: dict[str, Any] = {"nodeSelector": {"gpu": "true"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    rendered = render(
        {
            "prePull": {"enabled": True},
            "imagePullSecrets": [{"name": "registry"}],
            "extraPools": [{"name": "gpu", "image": "gpu:1", "runtimeClassName": "NodeDefault", **gpu}],
            "dataPool": {"enabled": True},
        }
    )
    assert rendered.names("DaemonSet", namespace="mcp-exec-system") == [
        "mcp-exec-images-data", "mcp-exec-images-default", "mcp-exec-images-gpu",
    ]  # fmt: skip
    for each in rendered.all("DaemonSet"):
        pool = rendered.one("SandboxPool", each["metadata"]["name"].removeprefix("mcp-exec-images-"))["spec"]
        spec = each["spec"]["template"]["spec"]
        assert spec["containers"][0]["image"] == pool["image"]
        for field in ("runtimeClassName", "nodeSelector", "tolerations", "imagePullSecrets"):
            assert spec.get(field) == pool.get(field), field
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert spec["automountServiceAccountToken"] is False
        assert violations(spec) == []
    assert render().all("DaemonSet") == []


def test_one_list_of_pull_secrets_is_for_all_images(render: Render) -> None:
    secrets = [{"name": "registry"}]
    rendered = render(
        {
            "imagePullSecrets": secrets,
            "demoServers": {"calculator": {"enabled": True}},
            "extraPools": [{"name": "own", "imagePullSecrets": [{"name": "another"}]}],
        }
    )
    for pod in rendered.pods().values():
        assert pod["imagePullSecrets"] == secrets
    assert rendered.one("SandboxPool", "default")["spec"]["imagePullSecrets"] == secrets
    assert rendered.one("SandboxPool", "own")["spec"]["imagePullSecrets"] == [{"name": "another"}]
    assert rendered.one("ToolServer", "calculator")["spec"]["stdio"]["imagePullSecrets"] == secrets


PAGE = (CHART.parents[1] / "docs" / "platform" / "clusters.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=[each.split(":")[0] for each in EXAMPLES])
def test_the_values_of_the_page_render(render: Render, example: str) -> None:
    rendered = render(yaml.safe_load(example))
    assert rendered.names("Deployment") == ["mcp-exec-broker", "mcp-exec-gateway", "mcp-exec-operator"]
    if "extended" in example:
        assert rendered.one("SandboxPool", "gpu")["spec"]["resources"]["extended"] == {"nvidia.com/gpu": 1}
    if "extraObjects" in example:
        assert rendered.one("ExternalSecret", "company-api-keys")["metadata"]["namespace"] == "mcp-exec-system"
