"""The chart passes the linters of Helm 3 and Helm 4 with all values of `ci/`, and follows the Kubernetes version."""

import shutil
import subprocess
from pathlib import Path

import helm_python
import pytest
import yaml
from tests.component.chart.conftest import CHART, Render

CI = sorted(CHART.glob("ci/*-values.yaml"))


@pytest.mark.parametrize("path", CI, ids=lambda path: path.stem)
def test_helm_3_finds_nothing_to_complain_of(helm: str, path: Path) -> None:
    command = [helm, "lint", "--strict", "--values", str(path), str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("path", CI, ids=lambda path: path.stem)
def test_helm_4_finds_nothing_to_complain_of(path: Path) -> None:
    values = yaml.safe_load(path.read_text()) or {}
    report = helm_python.lint(str(CHART), values, strict=True, kube_version="v1.34.0")
    assert report["errors"] == []
    assert [each for each in report["messages"] if each["severity"] > 1] == []


def test_a_package_has_no_values_for_linters(helm: str, tmp_path: Path) -> None:
    subprocess.run([helm, "package", str(CHART), "--destination", str(tmp_path)], capture_output=True, check=True)
    (package,) = tmp_path.glob("*.tgz")
    names = subprocess.run(["tar", "-tzf", package], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "mcp-exec/values.yaml" in names
    assert [name for name in names if "/ci/" in name] == []


def test_both_versions_of_helm_render_the_same(helm3: Render, helm4: Render) -> None:
    def comparable(render: Render) -> dict[tuple[str, str, str], object]:
        found: dict[tuple[str, str, str], object] = {}
        for item in render({"gateway": {"replicas": 2}}).objects:
            meta = item["metadata"]
            if "AdmissionPolicy" in item["kind"]:
                continue  # each library has its own default version of Kubernetes
            random = item["kind"] in ("Secret", "Deployment", "PodDisruptionBudget")
            found[item["kind"], meta.get("namespace", ""), meta["name"]] = None if random else item
        return found

    assert comparable(helm3) == comparable(helm4)


@pytest.mark.parametrize(("version", "expected"), [("1.20.0", "policy/v1beta1"), ("1.21.0", "policy/v1")])
def test_the_api_version_of_budgets_follows_the_cluster(helm3: Render, version: str, expected: str) -> None:
    budgets = helm3({"gateway": {"replicas": 2}}, "--kube-version", version).all("PodDisruptionBudget")
    assert {each["apiVersion"] for each in budgets} == {expected}
    assert len(budgets) == 2


def test_a_cluster_that_is_too_old_is_refused(helm3: Render) -> None:
    with pytest.raises(AssertionError, match=r"kubeVersion: >=1\.20"):
        helm3(None, "--kube-version", "1.19.0")


def test_a_providers_version_suffix_is_no_hindrance(helm3: Render) -> None:
    assert helm3(None, "--kube-version", "1.31.4-gke.1183000").all("Deployment")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("1.20.0", ["older than 1.30", "admission policies", "rules of custom resources", "Pod Security"]),
        ("1.29.9-gke.1", ["older than 1.30", "admission policies"]),
        ("1.30.0", []),
        ("1.37.9-eks-1", []),
        ("1.38.0", ["newer than 1.37"]),
    ],
)
def test_the_notes_say_what_a_version_of_kubernetes_lacks(
    helm: str, tmp_path: Path, version: str, said: list[str]
) -> None:
    """The notes are a template of the copied chart, because Helm renders notes only on a cluster."""
    chart = tmp_path / "mcp-exec"
    shutil.copytree(CHART, chart)
    (chart / "templates/NOTES.txt").rename(chart / "notes")
    (chart / "templates/notes.yaml").write_text('notes: {{ tpl (.Files.Get "notes") . | toJson }}\n')
    command = [helm, "template", "mcp-exec", str(chart), "--kube-version", version]
    done = subprocess.run(
        [*command, "--show-only", "templates/notes.yaml"], capture_output=True, text=True, check=True
    )  # fmt: skip
    notes = yaml.safe_load(done.stdout)["notes"]
    notices = [part for part in notes.split("\n\n") if f"NOTE: Kubernetes {version} is " in part]
    lines = "\n".join(notices).strip().splitlines()
    assert [words in line for words, line in zip(said, lines, strict=True)] == [True] * len(said)
