"""What stands in the served namespaces: pools, bounds, rights and walls."""

import json
import re
from typing import Any

import helm_python
import pytest
import yaml
from tests.component.chart.conftest import CHART, Render, Rendered

from mcp_exec_api.constants import LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY, SANDBOX_NAME
from mcp_exec_api.sandbox_pool import SandboxPoolSpec, Scaling
from mcp_exec_api.wire.version import RELEASE

IMAGE = f"example.invalid/sandbox@sha256:{'a' * 64}"


def pool(rendered: Rendered, name: str = "default", namespace: str = "agents") -> SandboxPoolSpec:
    spec = rendered.one("SandboxPool", name, namespace=namespace)["spec"]
    return SandboxPoolSpec.model_validate(spec)


def test_the_default_pool_says_no_more_than_it_must(render: Render) -> None:
    spec = render({"pool": {"runtimeClassName": "NodeDefault"}}).one("SandboxPool", "default")["spec"]
    assert spec == {"image": f"localhost/mcp-exec-sandbox:{RELEASE}"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"runtimeClassName": "gvisor"}, {"runtime_class_name": "gvisor"}),
        ({"runtimeClassName": "NodeDefault"}, {"runtime_class_name": None}),
        ({"runtimeClassName": "kata-qemu", "nodeSelector": {"kata": "true"}}, {"node_selector": {"kata": "true"}}),
        ({"warm": {"min": 0}}, {"warm": {"min": 0, "max": None}}),
        ({"warm": {"max": 30}}, {"warm": {"min": 3, "max": 30}}),
        ({"scaling": {"headroom": 0}}, {"scaling": {**Scaling().model_dump(), "headroom": 0}}),
        ({"maxPods": 7, "maxTimeoutSeconds": 9}, {"max_pods": 7, "max_timeout_seconds": 9}),
        ({"onEmpty": "Wait"}, {"on_empty": "Wait"}),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, {}),
        ({"affinity": {"nodeAffinity": {}}}, {"affinity": {"nodeAffinity": {}}}),
        ({"image": IMAGE}, {"image": IMAGE}),
        ({"imagePullSecrets": [{"name": "registry"}]}, {"image_pull_secrets": [{"name": "registry"}]}),
        ({"template": {"metadata": {"labels": {"team": "a"}}}}, {}),
    ],
    ids=lambda values: json.dumps(values),
)
def test_a_pools_values_are_its_spec(render: Render, values: dict[str, Any], expected: dict[str, Any]) -> None:
    found = pool(render({"pool": values})).model_dump()
    assert {name: found[name] for name in expected} == expected


def test_a_limit_that_is_changed_leaves_the_others_as_they_are(render: Render) -> None:
    limits = pool(render({"pool": {"resources": {"limits": {"memory": "1Gi"}}}})).resources.limits
    assert (limits.memory, limits.cpu, limits.ephemeral_storage) == ("1Gi", "1", "512Mi")


def test_every_served_namespace_has_all_that_it_needs(render: Render) -> None:
    rendered = render({"namespaces": ["agents", "batch"]})
    assert rendered.names("Namespace") == ["agents", "batch"]
    for namespace in ("agents", "batch"):
        assert rendered.names("SandboxPool", namespace=namespace) == ["default"]
        accounts = [f"mcp-exec-{name}" for name in ("broker", "cleanup", "gateway", "operator")]
        assert rendered.names("Role", namespace=namespace) == accounts
        assert rendered.names("RoleBinding", namespace=namespace) == [*accounts, "mcp-exec-operator-removal"]
        assert rendered.names("NetworkPolicy", namespace=namespace) == [], "the operator makes them"
        for kind in ("ResourceQuota", "LimitRange"):
            assert rendered.names(kind, namespace=namespace) == ["mcp-exec-sandboxes"]


def test_an_extra_pool_differs_only_in_what_it_names(render: Render) -> None:
    rendered = render(
        {
            "namespaces": ["agents", "batch"],
            "pool": {"runtimeClassName": "gvisor", "maxPods": 9, "warm": {"min": 4}},
            "extraPools": [
                {"name": "plain", "runtimeClassName": "NodeDefault", "warm": {"min": 0}},
                {"name": "kata", "runtimeClassName": "kata", "namespaces": ["batch"]},
            ],
        }
    )
    plain = pool(rendered, "plain")
    assert (plain.runtime_class_name, plain.max_pods, plain.warm.min) == (None, 9, 0)
    assert pool(rendered, "plain", "batch") == plain
    kata = pool(rendered, "kata", "batch")
    assert (kata.runtime_class_name, kata.max_pods, kata.warm.min) == ("kata", 9, 4)
    assert rendered.names("SandboxPool", namespace="agents") == ["default", "plain"]
    assert pool(rendered).runtime_class_name == "gvisor"


def test_the_pool_with_libraries_for_data_is_made_only_if_it_is_wanted(render: Render) -> None:
    assert render().names("SandboxPool") == ["default"]
    values = {"pool": {"runtimeClassName": "gvisor", "maxPods": 9, "warm": {"min": 4, "max": 8}}}
    data = pool(render({**values, "dataPool": {"enabled": True}}), "data")
    assert (data.image, data.runtime_class_name, data.max_pods) == (f"localhost/mcp-exec-data:{RELEASE}", "gvisor", 9)
    assert (data.warm.min, data.warm.max, data.preimport) == (1, None, ["numpy", "pandas"])
    assert data.resources.limits.memory == "1280Mi"
    own = {"enabled": True, "image": "mine:1", "preimport": []}
    data = pool(render({**values, "images": {"tag": "v2"}, "dataPool": own}), "data")
    assert (data.image, data.preimport) == ("mine:1", [])


def test_a_pool_for_typescript_is_made_only_if_it_is_wanted_and_imports_no_modules_ahead(render: Render) -> None:
    values = {"pool": {"runtimeClassName": "gvisor", "maxPods": 9, "preimport": ["json"], "warm": {"min": 4}}}
    made = pool(render({**values, "typescriptPool": {"enabled": True}}), "typescript")
    assert (made.language, made.image) == ("typescript", f"localhost/mcp-exec-sandbox-typescript:{RELEASE}")
    assert (made.runtime_class_name, made.max_pods, made.warm.min, made.preimport) == ("gvisor", 9, 1, [])
    digest = f"sha256:{'a' * 64}"
    images = {"repository": "r.example/team", "tag": "v2", "digests": {"sandboxTypescript": digest}}
    made = pool(render({**values, "images": images, "typescriptPool": {"enabled": True}}), "typescript")
    assert made.image == f"r.example/team/mcp-exec-sandbox-typescript:v2@{digest}"
    own = pool(render({**values, "typescriptPool": {"enabled": True, "image": "mine:1"}}), "typescript")
    assert own.image == "mine:1"


def test_an_extra_pool_of_another_language_has_the_image_of_this_language(render: Render) -> None:
    rendered = render({"extraPools": [{"name": "scripts", "language": "typescript"}, {"name": "plain"}]})
    scripts, plain = pool(rendered, "scripts"), pool(rendered, "plain")
    assert (scripts.language, scripts.image) == ("typescript", f"localhost/mcp-exec-sandbox-typescript:{RELEASE}")
    assert (plain.language, plain.image) == ("python", f"localhost/mcp-exec-sandbox:{RELEASE}")
    manifest = rendered.one("SandboxPool", "plain", namespace="agents")
    assert "language" not in manifest["spec"], "definitions of an earlier release do not have the field"


def test_an_extra_pool_can_be_the_only_one(render: Render) -> None:
    rendered = render({"pool": {"enabled": False}, "extraPools": [{"name": "only"}]})
    assert rendered.names("SandboxPool") == ["only"]


def test_an_extra_pool_for_a_namespace_that_is_not_served_is_refused(render: Render) -> None:
    with pytest.raises(AssertionError, match="pool far has the namespace elsewhere"):
        render({"extraPools": [{"name": "far", "namespaces": ["elsewhere"]}]})


def test_made_namespaces_enforce_pod_security_and_outlive_the_release(render: Render) -> None:
    meta = render({"namespaceLabels": {"team": "agents"}}).one("Namespace", "agents")["metadata"]
    for mode in ("enforce", "warn", "audit"):
        assert meta["labels"][f"pod-security.kubernetes.io/{mode}"] == "restricted"
        assert meta["labels"][f"pod-security.kubernetes.io/{mode}-version"] == "latest"
    assert meta["labels"]["kubernetes.io/metadata.name"] == "agents"
    assert meta["labels"]["team"] == "agents"
    assert meta["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_namespaces_of_a_trial_go_with_the_release(render: Render) -> None:
    assert "annotations" not in render({"keepNamespaces": False}).one("Namespace", "agents")["metadata"]


def test_namespaces_that_are_there_already_are_left_alone(render: Render) -> None:
    assert render({"createNamespaces": False}).all("Namespace") == []


def test_the_releases_own_namespace_is_never_served(render: Render) -> None:
    with pytest.raises(AssertionError, match="namespaces contains mcp-exec-system, the release's own namespace"):
        render({"namespaces": ["agents", "mcp-exec-system"], "createNamespaces": False})


def test_a_pool_without_a_chosen_runtime_is_refused(render: Render) -> None:
    said = "pool default has no runtimeClassName: set pool.runtimeClassName to a RuntimeClass .* or to NodeDefault"
    with pytest.raises(AssertionError, match=said):
        render({"pool": {"runtimeClassName": None}})
    for refused in ("", "Gvisor", "nodedefault/x"):
        with pytest.raises(AssertionError, match="runtimeClassName"):
            render({"pool": {"runtimeClassName": refused}})
    extra = {"extraPools": [{"name": "more"}], "pool": {"enabled": False, "runtimeClassName": None}}
    with pytest.raises(AssertionError, match="pool more has no runtimeClassName"):
        render(extra)


def test_without_a_pool_no_runtime_is_chosen(render: Render) -> None:
    without = {"pool": {"enabled": False, "runtimeClassName": None}}
    assert render(without).all("SandboxPool") == []


def test_quota_and_limits_are_values_and_can_be_left_out(render: Render) -> None:
    hard = {"pods": 10, "limits.memory": "5Gi", "count/codeexecutions.mcp-exec.dev": 1000000}
    rendered = render({"quota": {"hard": hard}, "limitRange": {"max": {"cpu": "2"}}})
    found = rendered.one("ResourceQuota", "mcp-exec-sandboxes")["spec"]["hard"]
    assert found["pods"] == "10"
    assert found["limits.memory"] == "5Gi"
    assert found["count/codeexecutions.mcp-exec.dev"] == "1000000"
    limits = rendered.one("LimitRange", "mcp-exec-sandboxes")["spec"]["limits"][0]
    assert limits["max"] == {"cpu": "2", "memory": "8Gi"}
    none = render({"quota": {"enabled": False}, "limitRange": {"enabled": False}})
    assert none.all("ResourceQuota") + none.all("LimitRange") == []


@pytest.mark.parametrize(
    ("values", "filled"),
    [
        ({}, []),
        ({"pool": {"maxPods": 199, "resources": {"limits": {"cpu": "250m", "memory": "128Mi"}}}}, []),
        ({"pool": {"maxPods": 200, "resources": {"limits": {"cpu": "250m", "memory": "128Mi"}}}}, ["pods (200)"]),
        ({"pool": {"resources": {"limits": {"cpu": "2"}}}}, ["limits.cpu (200)"]),
        ({"pool": {"resources": {"limits": {"memory": "2Gi"}}}}, ["limits.memory (150Gi)"]),
        ({"extraPools": [{"name": "b", "maxPods": 99}]}, []),
        (
            {"extraPools": [{"name": "b", "resources": {"limits": {"memory": "64Mi"}}}]},
            ["limits.cpu (200)", "pods (200)"],
        ),
        (
            {"pool": {"maxPods": 500}, "quota": {"hard": {"pods": 10**6, "limits.cpu": "1k", "limits.memory": "1Ti"}}},
            [],
        ),
        ({"pool": {"maxPods": 500}, "quota": {"enabled": False}}, []),
    ],
    ids=lambda values: json.dumps(values),
)
def test_the_notes_say_where_full_pools_leave_no_room_for_servers(values: dict[str, Any], filled: list[str]) -> None:
    with helm_python.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="mcp-exec", namespace="mcp-exec-system")
    notes = files["mcp-exec/templates/NOTES.txt"]
    resources = re.findall(r"all of the quota for (.*)\.$", notes, re.MULTILINE)
    assert resources == ([", ".join(filled)] if filled else [])


def test_the_notes_count_the_pools_of_each_namespace_by_itself() -> None:
    large = {"name": "b", "maxPods": 100, "resources": {"limits": {"memory": "64Mi", "cpu": "1"}}, "namespaces": ["b"]}
    values = {"namespaces": ["a", "b", "c"], "extraPools": [large]}
    with helm_python.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="mcp-exec", namespace="mcp-exec-system")
    notes = re.findall(r"NOTE: in (.*), pools that reach .* for (.*)\.$", files["mcp-exec/templates/NOTES.txt"], re.M)
    assert notes == [("b", "limits.cpu (200), pods (200)")]


def test_the_values_of_the_page_on_teams_give_the_team_its_pool(render: Render) -> None:
    page = (CHART.parents[1] / "docs" / "platform" / "teams.md").read_text()
    values = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)[0])
    pool = render(values).one("SandboxPool", "large", namespace="team-a")
    assert (pool["spec"]["maxPods"], pool["spec"]["resources"]["limits"]["memory"]) == (10, "2Gi")
    assert render(values).one("SandboxPool", "default", namespace="team-a")


def test_the_limits_of_a_namespace_leave_room_for_the_default_sandbox(render: Render) -> None:
    limits = render().one("LimitRange", "mcp-exec-sandboxes")["spec"]["limits"][0]
    assert limits["default"] == {"cpu": "1", "memory": "512Mi"}
    assert limits["max"] == {"cpu": "4", "memory": "8Gi"}


@pytest.mark.parametrize(("component", "port"), [("operator", 8086), ("gateway", 8080)])
def test_operator_and_gateway_reach_sandboxes_the_broker_and_the_api_server_alone(
    render: Render, component: str, port: int
) -> None:
    given = {"cidrs": ["10.0.0.1/32"], "ports": [6443]}
    rendered = render({"namespaces": ["agents", "batch"], "networkPolicy": {"apiServer": given}})
    spec = rendered.one("NetworkPolicy", f"mcp-exec-{component}")["spec"]
    assert [each["ports"] for each in spec["ingress"]] == [[{"port": port, "protocol": "TCP"}]]
    sandboxes, broker, server = spec["egress"]
    assert broker["ports"] == [{"port": 8084, "protocol": "TCP"}]
    assert broker["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "broker"
    assert sandboxes["ports"] == [{"port": 8700, "protocol": "TCP"}]
    selector = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["agents", "batch"]}
    assert sandboxes["to"] == [
        {
            "namespaceSelector": {"matchExpressions": [selector]},
            "podSelector": {"matchLabels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_NAME: SANDBOX_NAME}},
        }
    ]
    assert server == {"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 6443, "protocol": "TCP"}]}


def test_who_reaches_the_gateway_can_be_narrowed_and_helms_test_still_does(render: Render) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"team": "agents"}}}
    rendered = render({"networkPolicy": {"gatewayFrom": [peer], "metricsFrom": [peer]}})
    ingress = rendered.one("NetworkPolicy", "mcp-exec-gateway")["spec"]["ingress"][0]["from"]
    labels = rendered.one("Pod", "mcp-exec-test")["metadata"]["labels"]
    assert ingress[0]["podSelector"]["matchLabels"].items() <= labels.items()
    assert ingress[1:] == [peer]
    assert rendered.one("NetworkPolicy", "mcp-exec-operator")["spec"]["ingress"][0]["from"] == [peer]


def test_policies_of_the_chart_can_be_left_out(render: Render) -> None:
    assert render({"networkPolicy": {"enabled": False}}).all("NetworkPolicy") == []


def test_a_namespace_may_have_a_quota_of_its_own(render: Render) -> None:
    quota = {"namespaces": {"b": {"hard": {"pods": 0, "count/toolservers.mcp-exec.dev": 3}}}}
    rendered = render({"namespaces": ["a", "b"], "quota": quota})
    hard = {each["metadata"]["namespace"]: each["spec"]["hard"] for each in rendered.all("ResourceQuota")}
    assert hard["a"] == {"pods": "200", "limits.cpu": "200", "limits.memory": "150Gi"}
    assert hard["b"] == hard["a"] | {"pods": "0", "count/toolservers.mcp-exec.dev": "3"}


def test_a_quota_of_a_namespace_that_is_not_served_is_refused(render: Render) -> None:
    with pytest.raises(AssertionError, match=r"quota\.namespaces has b, which is not one of namespaces: agents"):
        render({"quota": {"namespaces": {"b": {"hard": {"pods": 1}}}}})
