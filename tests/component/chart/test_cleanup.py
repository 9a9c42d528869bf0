"""The Jobs that end sandboxes before an uninstallation or the removal of a namespace."""

from tests.component.chart.conftest import Render


def test_the_cleanup_runs_before_an_uninstallation_in_every_served_namespace(render: Render) -> None:
    rendered = render({"namespaces": ["agents", "batch"]})
    (job,) = rendered.all("Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert "hook-succeeded" in job["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    spec = job["spec"]["template"]["spec"]
    assert spec["containers"][0]["args"] == ["agents", "batch"]
    assert spec["serviceAccountName"] == "mcp-exec-cleanup"
    for namespace in ("agents", "batch"):
        role = rendered.one("Role", "mcp-exec-cleanup", namespace=namespace)
        assert {(*rule["resources"], *rule["verbs"]) for rule in role["rules"]} == {
            ("codeexecutions", "list", "patch"),
            ("codeexecutions/status", "update"),
            ("sandboxpools", "list", "delete"),
            ("skills", "list", "delete"),
            ("pods", "list"),
        }


def test_no_hook_creates_anything_in_a_served_namespace_which_may_be_gone(render: Render) -> None:
    hooks = [item for item in render().objects if "helm.sh/hook" in (item["metadata"].get("annotations") or {})]
    assert {item["metadata"]["namespace"] for item in hooks} == {"mcp-exec-system"}
