"""The public CI's workflow: it tests the oldest and the newest locked Kubernetes by targets that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    workflow = yaml.safe_load((ROOT / ".github/workflows/kind.yml").read_text())
    return dict(workflow["jobs"]["e2e"])


def test_it_runs_on_the_oldest_and_the_newest_locked_kubernetes(job: dict[str, Any]) -> None:
    locked = [line for line in (ROOT / "locks/kind.txt").read_text().splitlines() if not line.startswith("#")]
    tested = [entry["image"] for entry in job["strategy"]["matrix"]["include"]]
    assert tested == [locked[0], locked[-1]]
    for entry in job["strategy"]["matrix"]["include"]:
        assert f":{entry['kubernetes']}@" in entry["image"]


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
        for pattern in ("*/Dockerfile", "*/package-lock.json", "tests/*/package-lock.json")
        for path in ROOT.glob(pattern)
    }
    assert folders == {f"/{path.relative_to(ROOT)}" for path in locked}
