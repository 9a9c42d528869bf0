"""The public CI's workflows: pinned actions, few rights, targets that exist, the oldest and newest Kubernetes."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_exec_common.kube.version import NEWEST_SUPPORTED, OLDEST_SUPPORTED

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / ".github/workflows/kind.yml").read_text()))


@pytest.fixture(scope="module")
def job(workflow: dict[str, Any]) -> dict[str, Any]:
    return dict(workflow["jobs"]["e2e"])


def locked_images() -> list[str]:
    return [line for line in (ROOT / "locks/kind.txt").read_text().splitlines() if not line.startswith("#")]


def combinations(job: dict[str, Any]) -> list[dict[str, str]]:
    """Return the jobs of the matrix, with what `include` adds to them."""
    matrix = dict(job["strategy"]["matrix"])
    added = matrix.pop("include")
    found = [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]
    for entry in added:
        matching = [each for each in found if all(each[key] == entry[key] for key in entry.keys() & matrix.keys())]
        assert matching, f"{entry} would be a job of its own"
        for each in matching:
            each.update(entry)
    return found


def test_it_runs_on_the_oldest_and_the_newest_supported_kubernetes_with_each_network_plugin(
    job: dict[str, Any],
) -> None:
    jobs = combinations(job)
    networks = ("kindnet", "calico", "cilium")
    assert {(each["image"], each["network"]) for each in jobs} == set(
        product((locked_images()[0], locked_images()[-1]), networks)
    )
    minors = {str(NEWEST_SUPPORTED): locked_images()[0], str(OLDEST_SUPPORTED): locked_images()[-1]}
    for minor, image in minors.items():
        assert f":v{minor}." in image
    for each in jobs:
        assert f":{each['kubernetes']}@" in each["image"]
        assert each.get("cni", "kindnet").partition(":")[0] == each["network"]


def test_its_network_plugins_are_known_to_the_script(job: dict[str, Any]) -> None:
    known = re.findall(r"^    ([a-z]+):\S*\) *$", (ROOT / "hack/kind/up").read_text(), re.MULTILINE)
    assert {"kindnet", *known} == {each["network"] for each in combinations(job)}


def test_its_commands_are_targets(workflow: dict[str, Any]) -> None:
    targets = set(re.findall(r"^([a-z0-9]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    called = {command.removeprefix("make ") for command in commands if command.startswith("make")}
    assert called == {"demo", "frameworks", "e2e", "upgrade", "down"}
    assert called <= targets


def test_the_nodes_logs_are_kept_by_the_kind_of_the_tests(job: dict[str, Any]) -> None:
    (command,) = [step["run"] for step in job["steps"] if "kind export logs" in step.get("run", "")]
    assert command.startswith('PATH="$(hack/tools kind):$PATH" ')


def test_locked_node_images_are_in_the_order_of_their_kubernetes() -> None:
    text = (ROOT / "locks/kind.txt").read_text()
    found = re.findall(r"^kindest/node:v(\d+)\.(\d+)\.(\d+)@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert len(found) == len([line for line in text.splitlines() if not line.startswith("#")])
    versions = [tuple(map(int, version)) for version in found]
    assert versions == sorted(versions, reverse=True)


def test_every_file_of_the_public_forge_can_be_read() -> None:
    files = [*(ROOT / ".github").rglob("*.yml")]
    assert {"kind.yml", "bug.yml", "dependabot.yml"} <= {path.name for path in files}
    assert all(isinstance(yaml.safe_load(path.read_text()), dict) for path in files)


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
WRITERS = {
    "release.yml": {
        "images": {"packages", "id-token"},
        "index": {"packages", "id-token", "attestations"},
        "files": {"contents", "packages", "id-token", "attestations"},
        "wheels": {"id-token"},
    },
    "docs.yml": {"site": {"contents"}},
    "locks.yml": {"propose": {"contents", "pull-requests"}},
}
"""The rights to write of each job that has any."""


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit_with_its_version(path: Path) -> None:
    used = re.findall(r"^ *(?:- )?uses:(.*)$", path.read_text(), re.MULTILINE)
    assert used
    assert [line for line in used if not re.fullmatch(r" [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_an_action_has_one_commit_in_all_workflows() -> None:
    used = {line for path in WORKFLOWS for line in re.findall(r"uses: (\S+@\S+ # \S+)", path.read_text())}
    assert len(used) == len({line.partition("@")[0] for line in used})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_job_has_no_more_rights_than_it_needs(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert set(workflow["permissions"].values()) <= {"read"}
    writers = {
        name: {right for right, value in job.get("permissions", {}).items() if value == "write"}
        for name, job in workflow["jobs"].items()
    }
    assert {name: rights for name, rights in writers.items() if rights} == WRITERS.get(path.name, {})
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_says_that_it_has_not_run_and_runs_what_exists(path: Path) -> None:
    text = path.read_text()
    assert "This workflow has not run yet" in text.replace("\n# ", " ")
    commands = [step.get("run", "") for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    assert set(re.findall(r"(?m)^make ([a-z0-9-]+)", "\n".join(commands))) <= TARGETS
    assert all((ROOT / name).exists() for name in re.findall(r"\bhack/[\w.-]+", text))


def test_the_images_of_a_release_and_of_the_scan_are_all_images() -> None:
    names = (ROOT / "hack/push").read_text().split("for name in ", 1)[1].split(";")[0].split()
    for path, job in (("release.yml", "index"), ("scan.yml", "images")):
        workflow = yaml.safe_load((ROOT / ".github/workflows" / path).read_text())
        assert workflow["jobs"][job]["strategy"]["matrix"]["image"] == names
