"""Languages in the types of the API."""

from typing import Any

import pytest
from pydantic import ValidationError

import mcp_exec_tools.languages
from mcp_exec_api.code_execution import CodeExecutionSpec, spec_digest
from mcp_exec_api.constants import DEFAULT_LANGUAGE, LANGUAGES, SOURCE_ENDINGS
from mcp_exec_api.sandbox_pool import SandboxPoolSpec, format_languages
from mcp_exec_api.skill import SkillRef, content_digest, format_import, format_run
from mcp_exec_common.skills.folder import CODE_FILES, FILE_TYPES


def test_each_language_has_an_ending_a_file_of_skills_and_a_call_of_a_skill() -> None:
    assert LANGUAGES[0] == DEFAULT_LANGUAGE
    assert tuple(SOURCE_ENDINGS) == tuple(CODE_FILES) == LANGUAGES
    assert set(CODE_FILES.values()) < set(FILE_TYPES)
    for language in LANGUAGES:
        assert format_import("weekly-report", 2, language) in format_run(
            SkillRef(name="weekly-report", version=2), language
        )


def test_a_skill_is_called_in_the_language_of_the_execution() -> None:
    spec = CodeExecutionSpec(skill_ref=SkillRef(name="profile-table", version=2), language="typescript")
    assert spec.build_source("typescript") == 'import { run } from "skills/profile_table_v2";\nawait run(context);\n'
    assert CodeExecutionSpec(code="1 + 1").build_source("typescript") == "1 + 1"


def test_only_pools_of_python_import_modules_before_they_are_warm() -> None:
    assert SandboxPoolSpec(image="i", preimport=["json"]).language == "python"
    with pytest.raises(ValidationError, match="preimport is only for pools of the language python; it is typescript"):
        SandboxPoolSpec(image="i", language="typescript", preimport=["json"])
    with pytest.raises(ValidationError, match="'python' or 'typescript'"):
        SandboxPoolSpec.model_validate({"image": "i", "language": "ruby"})


def test_digests_from_before_there_were_languages_stay_valid() -> None:
    def skill(**fields: Any) -> dict[str, Any]:
        return {"name": "a", "version": 1, "description": "d", "code": "def run(): ...", **fields}

    assert content_digest(skill()) == content_digest(skill(language="python"))
    assert content_digest(skill()) != content_digest(skill(language="typescript"))
    assert spec_digest({"code": "1"}) == spec_digest({"code": "1", "language": None})
    assert spec_digest({"code": "1"}) != spec_digest({"code": "1", "language": "typescript"})


def test_pools_are_named_with_their_languages_and_in_bounded_numbers() -> None:
    assert format_languages({"b": "typescript", "a": "python"}) == "a (python), b (typescript)"
    assert format_languages({}) == "none"
    assert format_languages({f"p{number:02}": "python" for number in range(22)}).endswith("p19 (python), 2 more")


def test_the_tools_know_the_languages_of_the_api() -> None:
    assert mcp_exec_tools.languages.LANGUAGES == LANGUAGES
