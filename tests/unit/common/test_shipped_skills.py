"""The skills that come with the project are complete, described, and use the standard library alone."""

import ast
import sys

import pytest
from tests.support.shipped_skills import NAMES, read_example, read_folder

from mcp_exec_api.skill import SkillSpec
from mcp_exec_common.code_check.rules import find_issues
from mcp_exec_common.skills.folder import build_archive, read_archive
from mcp_exec_common.skills.interface import read_interface


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_skill_can_be_saved_as_it_is(name: str) -> None:
    folder = read_folder(name)
    assert folder.name == name
    assert read_archive(build_archive(folder, version=1)) == folder
    SkillSpec.model_validate({**vars(folder), "version": 1})
    interface = read_interface(folder.code)
    undescribed = [each for each, schema in interface.parameters["properties"].items() if "description" not in schema]
    assert undescribed == []
    assert interface.summary
    assert find_issues(folder.code) == []
    assert f"from skills.{name.replace('-', '_')} import run" in read_example(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_skill_needs_no_library(name: str) -> None:
    imports = [
        node for node in ast.walk(ast.parse(read_folder(name).code)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    tops = {alias.name.partition(".")[0] for node in imports if isinstance(node, ast.Import) for alias in node.names}
    tops |= {str(node.module).partition(".")[0] for node in imports if isinstance(node, ast.ImportFrom)}
    assert tops <= set(sys.stdlib_module_names) | {"client"}
