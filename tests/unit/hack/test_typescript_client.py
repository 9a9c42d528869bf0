"""Files of the TypeScript client that come from the API."""

import json
import re
from pathlib import Path

import pytest
from hack.artifacts.npm import build_manifest
from hack.openapi import PAGE
from hack.typescript_client import FOLDER, build_files, build_operations, build_options

from mcp_exec_api.wire.execution_options import EXECUTION_OPTIONS
from mcp_exec_api.wire.version import RELEASE

ROOT = Path(__file__).parents[3]


def test_the_files_are_current() -> None:
    for path, text in build_files().items():
        assert path.read_text() == text, "run `make generate`"


def test_each_operation_with_plain_bodies_has_a_method_with_the_names_of_its_path() -> None:
    paths = json.loads(PAGE.read_text())["paths"]
    found = re.findall(r"^  (\w+)\((.*?)options: Given", build_operations(paths), re.MULTILINE)
    methods = dict(found)
    assert methods["getSkill"] == "name: string, version: number, "
    assert methods["deleteSession"] == "name: string, ", "it answers without a body"
    assert methods.keys().isdisjoint({"streamEvents", "putFile", "getArtifact"}), "their bodies are bytes"
    declared = {each["operationId"] for operations in paths.values() for each in operations.values()}
    assert len(found) == len(methods) > len(declared) / 2
    assert methods.keys() <= declared


def test_each_option_has_its_field_and_the_api_s_description() -> None:
    properties = {name.split(".")[0]: {} for name in (each.field for each in EXECUTION_OPTIONS.values())}
    text = build_options({**properties, "context": {"description": "Data */ as\nJSON."}})
    assert "  /** Data * / as JSON. */\n  context?: " in text
    assert '  timeoutSeconds?: Body["timeoutSeconds"] | null | undefined;' in text
    assert '  pool?: NonNullable<Body["poolRef"]>["name"] | null | undefined;' in text
    assert '  ttlSeconds: "ttlSecondsAfterFinished",' in text
    assert max(map(len, text.splitlines())) <= 120


def test_the_package_says_where_the_project_is_if_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROJECT_URL", "SITE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert build_manifest().keys().isdisjoint({"homepage", "repository", "devDependencies"})
    monkeypatch.setenv("PROJECT_URL", "https://git.example/mcp-exec")
    monkeypatch.setenv("SITE_URL", "https://docs.example/")
    found = build_manifest()
    assert (found["homepage"], found["repository"]) == ("https://docs.example", "git+https://git.example/mcp-exec")
    assert found["version"] == RELEASE


def test_the_tools_are_locked_by_digest_and_from_no_particular_registry() -> None:
    wanted = json.loads((FOLDER.parent / "package.json").read_text())
    own, *packages = json.loads((FOLDER.parent / "package-lock.json").read_text())["packages"].values()
    assert own["devDependencies"] == wanted["devDependencies"]
    assert all(package["integrity"].startswith("sha512-") and "resolved" not in package for package in packages)
    assert all(package["dev"] for package in packages), "the client itself has no dependencies"
