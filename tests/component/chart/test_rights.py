"""Rights: few, named, and in served namespaces alone."""

from tests.component.chart.conftest import Object, Render

from mcp_exec_api.constants import GROUP
from mcp_exec_api.crd_schema import build_definitions

API_KEYS = ("api-keys", "initial-api-key")


def rules(render: Render) -> list[tuple[str, Object]]:
    rendered = render({"namespaces": ["agents"]})
    return [
        (item["metadata"]["name"], rule)
        for kind in ("Role", "ClusterRole")
        for item in rendered.all(kind)
        for rule in item["rules"]
    ]


def test_no_right_is_a_wildcard(render: Render) -> None:
    for name, rule in rules(render):
        assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]], name


def test_no_secret_can_be_listed_but_the_gateways_own(render: Render) -> None:
    found = {
        (name, *rule["verbs"]): sorted(rule["resourceNames"]) if "resourceNames" in rule else None
        for name, rule in rules(render)
        if "secrets" in rule["resources"]
    }
    assert found == {
        ("mcp-exec-gateway-api-keys", "get", "list", "watch"): ["mcp-exec-api-keys"],
        ("mcp-exec-broker", "get"): None,
        ("mcp-exec-operator", "get"): None,
        ("mcp-exec-operator-keys", "get"): [f"mcp-exec-{name}" for name in (*API_KEYS, "sandbox-key")],
        ("mcp-exec-operator-keys", "create"): None,
        ("mcp-exec-operator-keys", "patch"): ["mcp-exec-api-keys", "mcp-exec-sandbox-key"],
        ("mcp-exec-operator-keys", "delete"): ["mcp-exec-initial-api-key"],
    }


def test_without_a_broker_nobody_has_rights_for_tools(render: Render) -> None:
    rendered = render({"broker": {"enabled": False}})
    resources = {
        resource
        for kind in ("Role", "ClusterRole")
        for item in rendered.all(kind)
        for rule in item["rules"]
        for resource in rule["resources"]
    }
    assert not resources & {"toolservers", "deployments", "services", "endpointslices"}
    assert [name for name in rendered.names("ServiceAccount") if "broker" in name] == []


def test_the_broker_reads_servers_executions_secrets_and_bundles_and_writes_a_status_alone(render: Render) -> None:
    role = render().one("Role", "mcp-exec-broker", namespace="agents")
    assert {(*rule["resources"], *rule["verbs"]) for rule in role["rules"]} == {
        ("toolservers", "get", "list", "watch"),
        ("toolservers/status", "patch"),
        ("codeexecutions", "get", "list", "watch"),
        ("secrets", "get"),
        ("configmaps", "get"),
    }


def test_roles_for_people_are_bound_to_nobody_and_part_of_kubernetes_own_on_request_only(render: Render) -> None:
    label = "rbac.authorization.k8s.io/aggregate-to-"
    for values, aggregated in (({}, set()), ({"aggregateRoles": True}, {"view", "edit", "admin"})):
        rendered = render(values)
        roles = [rendered.one("ClusterRole", f"mcp-exec-{name}") for name in ("viewer", "caller", "manager")]
        labels = {key for role in roles for key in role["metadata"]["labels"]}
        assert {key.removeprefix(label) for key in labels if key.startswith(label)} == aggregated
        assert not {role["metadata"]["name"] for role in roles} & {
            binding["roleRef"]["name"]
            for kind in ("RoleBinding", "ClusterRoleBinding")
            for binding in rendered.all(kind)
        }
    viewer, caller, manager = (
        {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
        for role in roles
    )
    assert viewer < caller < manager
    assert ("codeexecutions", "create") in caller - viewer
    assert ("toolservers", "create") in manager - caller
    assert not any("status" in resource or "approval" in resource for resource, _ in manager)


def test_the_operators_only_rights_everywhere_are_to_read_nodes_and_to_upgrade_its_definitions(render: Render) -> None:
    rendered = render({"namespaces": ["agents"]})
    assert rendered.one("ClusterRole", "mcp-exec-operator")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    ]
    replaces, creates = rendered.one("ClusterRole", "mcp-exec-operator-crds")["rules"]
    assert replaces["resources"] == creates["resources"] == ["customresourcedefinitions"]
    assert sorted(replaces["resourceNames"]) == sorted(f"{plural}.{GROUP}" for plural in build_definitions())
    assert (replaces["verbs"], creates["verbs"]) == (["get", "update"], ["create"])
    settings = rendered.environment("mcp-exec-operator")
    assert (settings["MCP_EXEC_WATCH_NODES"], settings["MCP_EXEC_UPGRADE_CRDS"]) == ("true", "true")


def test_no_disruption_budget_holds_up_the_eviction_of_sandboxes(render: Render) -> None:
    for budget in render({"gateway": {"replicas": 2}}).all("PodDisruptionBudget"):
        labels = budget["spec"]["selector"]["matchLabels"]
        assert labels["app.kubernetes.io/component"] in ("operator", "gateway", "broker")


def test_without_rights_in_the_cluster_those_elsewhere_are_on_its_lease_its_keys_and_the_brokers_replicas(
    render: Render,
) -> None:
    values = {"namespaces": ["agents"], "operator": {"watchNodes": False}, "crds": {"upgrade": False}}
    rendered = render(values)
    settings = rendered.environment("mcp-exec-operator")
    assert (settings["MCP_EXEC_WATCH_NODES"], settings["MCP_EXEC_UPGRADE_CRDS"]) == ("false", "false")
    found = {
        (kind, binding["metadata"].get("namespace"), binding["roleRef"]["name"])
        for kind in ("ClusterRoleBinding", "RoleBinding")
        for binding in rendered.all(kind)
        if binding["subjects"][0]["name"] == "mcp-exec-operator"
    }
    assert found == {
        ("RoleBinding", "agents", "mcp-exec-operator"),
        ("RoleBinding", "agents", "mcp-exec-operator-removal"),
        ("RoleBinding", "mcp-exec-system", "mcp-exec-operator-keys"),
        ("RoleBinding", "mcp-exec-system", "mcp-exec-operator-lease"),
        ("RoleBinding", "mcp-exec-system", "mcp-exec-broker-replicas"),
    }
    lease = rendered.one("Role", "mcp-exec-operator-lease")["rules"]
    assert [(rule["resources"], rule.get("resourceNames"), rule["verbs"]) for rule in lease] == [
        (["leases"], ["mcp-exec-operator"], ["get", "list", "watch", "patch"]),
        (["leases"], None, ["create"]),
    ]


def test_a_lease_is_named_as_its_right_is(render: Render) -> None:
    rendered = render(release="blue")
    named = rendered.one("Role", "blue-mcp-exec-operator-lease")["rules"][0]["resourceNames"]
    assert named == [rendered.environment("blue-mcp-exec-operator")["MCP_EXEC_LEASE_NAME"]]


def test_the_gateways_only_rights_everywhere_are_to_ask_who_a_caller_is(render: Render) -> None:
    roles = [role for role in render().all("ClusterRole") if role["metadata"]["name"] == "mcp-exec-gateway"]
    assert [(rule["resources"], rule["verbs"]) for role in roles for rule in role["rules"]] == [
        (["tokenreviews"], ["create"]),
        (["subjectaccessreviews"], ["create"]),
    ]


def test_every_binding_names_a_role_and_an_account_of_the_chart(render: Render) -> None:
    rendered = render(release="blue", namespace="blue-system")
    accounts = rendered.names("ServiceAccount")
    assert accounts == [f"blue-mcp-exec-{name}" for name in ("broker", "cleanup", "gateway", "operator")]
    for binding in rendered.all("RoleBinding") + rendered.all("ClusterRoleBinding"):
        role = binding["roleRef"]
        namespace = binding["metadata"]["namespace"] if role["kind"] == "Role" else None
        rendered.one(role["kind"], role["name"], namespace=namespace)
        assert {each["name"] for each in binding["subjects"]} <= set(accounts)
        assert {each["namespace"] for each in binding["subjects"]} == {"blue-system"}


def test_the_approvers_role_reads_and_decides_and_is_nobodys_until_it_is_bound(render: Render) -> None:
    rendered = render()
    role = rendered.one("ClusterRole", "mcp-exec-approver")
    assert {(*rule["resources"], *rule["verbs"]) for rule in role["rules"]} == {
        ("codeexecutions", "executionrollouts", "skills", "get", "list", "watch"),
        ("codeexecutions/approval", "executionrollouts/approval", "skills/approval", "update"),
    }
    bindings = rendered.all("RoleBinding") + rendered.all("ClusterRoleBinding")
    assert "mcp-exec-approver" not in [each["roleRef"]["name"] for each in bindings]
    assert not [label for label in role["metadata"]["labels"] if "aggregate" in label]
    without = render({"broker": {"enabled": False}}).one("ClusterRole", "mcp-exec-approver")
    assert without["rules"][1]["resources"] == ["executionrollouts/approval", "skills/approval"]
