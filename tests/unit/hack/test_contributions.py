"""What the public forge does for contributions: tests of pull requests, and updates of what is locked."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]


def read(name: str) -> dict[Any, Any]:
    return dict(yaml.safe_load((ROOT / ".github" / name).read_text()))


def test_a_pull_request_gets_the_tests_that_contributing_asks_for() -> None:
    workflow = read("workflows/tests.yml")
    assert "pull_request" in workflow[True], "YAML reads the word on as a boolean"
    (job,) = workflow["jobs"].values()
    targets = " ".join(job["strategy"]["matrix"]["target"])
    assert f"`make {targets}`" in (ROOT / "CONTRIBUTING.md").read_text()
    assert f"`make {targets}`" in (ROOT / ".github/pull_request_template.md").read_text()


def test_the_locks_are_upgraded_by_a_job_that_runs_none_of_the_new_packages_with_rights_to_write() -> None:
    jobs = read("workflows/locks.yml")["jobs"]
    commands = {name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    assert "make lock UPGRADE=yes" in commands["upgrade"]
    assert "permissions" not in jobs["upgrade"]
    assert "git push" in commands["propose"]
    assert not re.search(r"make|pip|python|pytest|hack/", commands["propose"])


def test_dependabot_updates_what_it_can_read() -> None:
    updates = read("dependabot.yml")["updates"]
    folders = {each["package-ecosystem"]: set(each.get("directories", [each.get("directory")])) for each in updates}
    places = ("*", "client/*", "hack/*", "sandbox_image/*", "tests/*")
    locks = [path for place in places for path in ROOT.glob(f"{place}/package-lock.json")]
    npm = {f"/{path.parent.relative_to(ROOT)}" for path in locks}
    assert folders == {"github-actions": {"/"}, "pip": {"/"}, "npm": npm}
