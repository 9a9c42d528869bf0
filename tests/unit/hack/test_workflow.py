"""The public CI's workflow: it tests the oldest and the newest supported Kubernetes by targets that exist."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_exec_common.kube.version import NEWEST_SUPPORTED, OLDEST_SUPPORTED

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    workflow = yaml.safe_load((ROOT / ".github/workflows/kind.yml").read_text())
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


def test_its_commands_are_targets(job: dict[str, Any]) -> None:
    targets = set(re.findall(r"^([a-z0-9]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {step["run"].removeprefix("make ") for step in job["steps"] if step.get("run", "").startswith("make")}
    assert called == {"demo", "frameworks", "e2e", "down"}
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


def test_updates_are_asked_for_where_packages_are_locked() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    folders = {folder for each in updates for folder in each.get("directories", ())}
    locked = {
        path.parent
        for pattern in ("*/Dockerfile", "*/package-lock.json", "hack/*/package-lock.json", "tests/*/package-lock.json")
        for path in ROOT.glob(pattern)
    }
    assert folders == {f"/{path.relative_to(ROOT)}" for path in locked}
