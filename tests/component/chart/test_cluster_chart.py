"""The chart `mcp-exec-cluster` has what needs an administrator, and the chart `mcp-exec` the rest."""

import subprocess
from typing import Any

import pytest
import yaml
from tests.component.chart.conftest import CHART, Object, Render, Rendered

CLUSTER_CHART = CHART.parent / "mcp-exec-cluster"
OWN = {"Chart.yaml", "README.md", "templates/NOTES.txt"}
"""Files that the two charts do not share."""
ADMINISTRATORS = {
    "ClusterRole", "ClusterRoleBinding", "LimitRange", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
    "Namespace", "PriorityClass", "ResourceQuota", "Role", "RoleBinding",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
"""Kinds that Kubernetes' role `admin` in a namespace does not let create, or only with the rights that they give."""
FULL: Object = yaml.safe_load((CHART / "ci" / "full-values.yaml").read_text())
VALUES = [{}, FULL, {"broker": {"enabled": False}, "crds": {"upgrade": False}, "operator": {"watchNodes": False}}]


def by_name(rendered: Rendered) -> dict[tuple[str, str, str], Any]:
    """Return all objects, without the label that names the chart."""
    found = {}
    for item in rendered.objects:
        meta = item["metadata"]
        meta.get("labels", {}).pop("helm.sh/chart", None)
        found[item["kind"], meta.get("namespace", ""), meta["name"]] = item
    return found


@pytest.mark.parametrize("values", VALUES, ids=["default", "full", "few"])
@pytest.mark.parametrize("release", ["mcp-exec", "agents"])
def test_the_two_charts_together_render_the_whole_one(render: Render, values: Object, release: str) -> None:
    values = {**values, "admissionPolicy": {"enabled": True}}
    whole = by_name(render(values, release=release))
    cluster = by_name(render(values, release=f"{release}-cluster", chart=CLUSTER_CHART))
    rest = by_name(render({**values, "clusterObjects": {"create": False}}, release=release))
    assert cluster.keys() & rest.keys() == set()
    assert cluster | rest == whole
    assert {kind for kind, _, _ in cluster} <= ADMINISTRATORS


@pytest.mark.parametrize("values", VALUES, ids=["default", "full", "few"])
def test_who_administers_two_namespaces_can_install_the_rest(render: Render, values: Object) -> None:
    rendered = render({**values, "clusterObjects": {"create": False}})
    assert {item["kind"] for item in rendered.objects} & ADMINISTRATORS == set()
    places = {item["metadata"].get("namespace") for item in rendered.objects}
    assert places == {"mcp-exec-system", *values.get("namespaces", ["agents"])}


def test_the_charts_share_their_files() -> None:
    shared = {
        path.relative_to(CLUSTER_CHART).as_posix(): path for path in CLUSTER_CHART.rglob("*") if path.is_symlink()
    }
    assert all(CHART in path.resolve().parents for path in shared.values())
    files = {path.relative_to(CLUSTER_CHART).as_posix() for path in CLUSTER_CHART.rglob("*") if path.is_file()}
    assert {name for name in files - set(shared) if not any(name.startswith(f"{each}/") for each in shared)} == OWN
    versions = [yaml.safe_load((chart / "Chart.yaml").read_text()) for chart in (CHART, CLUSTER_CHART)]
    for field in ("version", "appVersion", "kubeVersion"):
        assert versions[0][field] == versions[1][field]


def test_the_chart_for_the_cluster_passes_the_linter(helm: str) -> None:
    done = subprocess.run([helm, "lint", "--strict", str(CLUSTER_CHART)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_release_of_the_cluster_chart_names_the_other_one(render: Render) -> None:
    with pytest.raises(AssertionError, match="name it NAME-cluster"):
        render({}, release="mcp-exec", chart=CLUSTER_CHART)
    assert "mcp-exec-viewer" in render({}, release="mcp-exec-cluster", chart=CLUSTER_CHART).names("ClusterRole")
