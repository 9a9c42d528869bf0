"""What ends sandboxes before an uninstallation, and after a namespace was removed from the values."""

from tests.component.chart.conftest import Object, Render

from mcp_exec_operator.cleanup import build_parser

BOTH = {"namespaces": ["agents", "batch"]}


def rights(role: Object) -> set[tuple[str, ...]]:
    return {(*rule["resources"], *rule.get("resourceNames", []), *rule["verbs"]) for rule in role["rules"]}


def test_the_cleanup_runs_before_an_uninstallation_in_every_served_namespace(render: Render) -> None:
    rendered = render(BOTH)
    (job,) = rendered.all("Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert "hook-succeeded" in job["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    spec = job["spec"]["template"]["spec"]
    told = build_parser().parse_args(spec["containers"][0]["args"])
    assert (told.operator, told.release_namespace) == ("mcp-exec-operator", "mcp-exec-system")
    assert told.namespaces == ["agents", "batch"]
    assert spec["serviceAccountName"] == "mcp-exec-cleanup"
    for namespace in ("agents", "batch"):
        role = rendered.one("Role", "mcp-exec-cleanup", namespace=namespace)
        assert rights(role) == {("codeexecutions", "patch")}
    assert rights(rendered.one("Role", "mcp-exec-cleanup", namespace="mcp-exec-system")) == {
        ("deployments/scale", "mcp-exec-operator", "patch"),
        ("leases", "mcp-exec-operator", "get"),
    }


def test_nothing_deletes_a_pool(render: Render) -> None:
    rendered = render()
    bound = {
        binding["roleRef"]["name"] for kind in ("RoleBinding", "ClusterRoleBinding") for binding in rendered.all(kind)
    }
    deleting = {
        role["metadata"]["name"]
        for kind in ("Role", "ClusterRole")
        for role in rendered.all(kind)
        for rule in role["rules"]
        if "sandboxpools" in rule["resources"] and {"delete", "deletecollection"} & {*rule["verbs"]}
    }
    assert deleting == {"mcp-exec-manager"}
    assert not bound & deleting


def test_what_ends_a_removed_namespace_stays_there_until_it_has(render: Render) -> None:
    rendered = render({**BOTH, "broker": {"enabled": False}})
    role = rendered.one("ClusterRole", "mcp-exec-operator-removal")
    assert rights(role) == {
        ("codeexecutions", "list"),
        ("codeexecutions/status", "update"),
        ("sandboxpools", "list"),
        ("sandboxpools/status", "patch"),
        ("skills", "list", "delete"),
        ("pods", "list", "delete"),
        ("networkpolicies", "mcp-exec-base", "delete"),
        ("leases", "mcp-exec", "get", "delete"),
        ("namespaceclaims", "delete"),
        ("namespaces", "get"),
        ("rolebindings", "list"),
        ("rolebindings", "mcp-exec-operator-removal", "delete"),
    }
    kept = [
        (item["kind"], item["metadata"]["namespace"])
        for item in rendered.objects
        if (item["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") == "keep"
        if item["kind"] != "Namespace"
    ]
    assert kept == [("RoleBinding", "agents"), ("RoleBinding", "batch")]
    for namespace in ("agents", "batch"):
        binding = rendered.one("RoleBinding", "mcp-exec-operator-removal", namespace=namespace)
        assert binding["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] == "Prune=false"
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert [each["name"] for each in binding["subjects"]] == ["mcp-exec-operator", "mcp-exec-cleanup"]


def test_no_hook_creates_anything_in_a_served_namespace_which_may_be_gone(render: Render) -> None:
    hooks = [item for item in render().objects if "helm.sh/hook" in (item["metadata"].get("annotations") or {})]
    assert {item["metadata"]["namespace"] for item in hooks} == {"mcp-exec-system"}
