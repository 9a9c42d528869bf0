"""Names, modules and digests of skills."""

from typing import Any

import pytest

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.skill import content_digest, module_name, split_module

SPEC: dict[str, Any] = {"name": "report", "version": 1, "description": "Make a report.", "code": "def run(): ..."}


@pytest.mark.parametrize(
    ("name", "version", "module"),
    [
        ("profile-table", None, "profile_table"),
        ("profile-table", 3, "profile_table_v3"),
        ("class", None, "class_"),
        ("class", 2, "class_v2"),
        ("a1", 99_999, "a1_v99999"),
    ],
)
def test_a_module_stands_for_one_name_and_version(name: str, version: int | None, module: str) -> None:
    assert module_name(name, version) == module
    assert split_module(module) == (name, version)


def test_a_digest_changes_with_all_that_a_person_reviews_and_nothing_else() -> None:
    digest = content_digest(SPEC)
    changes: list[dict[str, Any]] = [{"code": "def run(): 1"}, {"tools": ["a.b"]}, {"instructions": "x"}, {"user": "u"}]
    assert len({digest, *(content_digest(SPEC | change) for change in changes)}) == len(changes) + 1
    assert content_digest(SPEC | {"provenance": {"source": "Code"}, "review": {}, "tools": [], "tags": None}) == digest


def test_an_execution_of_a_skill_runs_what_calls_it() -> None:
    spec = CodeExecutionSpec.model_validate({"skillRef": {"name": "profile-table", "version": 2}})
    assert spec.build_source("python") == "from skills.profile_table_v2 import run\nrun(**context)\n"
    assert CodeExecutionSpec(code="1").build_source("python") == "1"
