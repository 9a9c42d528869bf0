"""The runtime of a Docker engine on machines that withhold CAP_SYS_RESOURCE."""

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support.scripts import load

CAPABILITIES = {
    "bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"],
    "effective": ["CAP_SYS_RESOURCE"],
    "inheritable": ["CAP_CHOWN"],
}
LEFT = {"bounding": ["CAP_CHOWN"], "effective": [], "inheritable": ["CAP_CHOWN"]}


@pytest.fixture(scope="module")
def wrapper() -> ModuleType:
    return load("kind/runc-without-sys-resource")


class Called(Exception):
    """The program that the wrapper becomes."""


def run(wrapper: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """Run the wrapper and return the command line of runc."""

    def become(_: str, command: list[str]) -> None:
        raise Called(*command)

    monkeypatch.setattr(os, "execv", become)
    monkeypatch.setattr("sys.argv", ["wrapper", *arguments])
    with pytest.raises(Called) as called:
        wrapper.main()
    return list(called.value.args)


@pytest.mark.parametrize("form", [["--bundle", "{}"], ["--bundle={}"], ["-b", "{}"]])
@pytest.mark.parametrize("command", ["create", "run"])
def test_a_container_starts_without_the_capability(
    wrapper: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, form: list[str]
) -> None:
    config = tmp_path / "config.json"
    document: dict[str, Any] = {"process": {"capabilities": CAPABILITIES, "user": {"uid": 0}}, "root": {"path": "x"}}
    config.write_text(json.dumps(document))
    arguments = ["--root", "/run/x", command, *(part.format(tmp_path) for part in form), "name"]
    assert run(wrapper, monkeypatch, *arguments) == ["runc", *arguments]
    document["process"]["capabilities"] = LEFT
    assert json.loads(config.read_text()) == document


def test_a_process_joins_a_container_without_the_capability(
    wrapper: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process = tmp_path / "process.json"
    process.write_text(json.dumps({"args": ["sh"], "capabilities": CAPABILITIES}))
    run(wrapper, monkeypatch, "exec", "--process", str(process), "--detach", "name")
    assert json.loads(process.read_text()) == {"args": ["sh"], "capabilities": LEFT}


def test_other_commands_reach_runc_unchanged(wrapper: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(wrapper, monkeypatch, "kill", "name", "9") == ["runc", "kill", "name", "9"]
