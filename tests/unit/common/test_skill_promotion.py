"""Code of a run becomes a skill: its definitions, or a function around all of it."""

import asyncio
from typing import Any

import pytest

from mcp_exec_common.skills.interface import InvalidSkill, promote_code, read_interface


def call(code: str, **arguments: Any) -> Any:
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    value = namespace["run"](**arguments)
    return asyncio.run(value) if asyncio.iscoroutine(value) else value


def test_a_run_that_defines_run_keeps_its_definitions_alone() -> None:
    code = promote_code("import math\nLIMIT = 3\ndef run(a):\n    return a * LIMIT\nrows = [1]\nrun(missing)\n", [])
    assert call(code, a=2) == 6
    assert "missing" not in code


def test_any_other_run_becomes_a_function_of_its_context() -> None:
    code = promote_code("import json\ntotal = sum(rows)\njson.dumps([total, context['rows']])", ["rows", "not a name"])
    assert call(code, rows=[1, 2]) == "[3, [1, 2]]"
    assert read_interface(code).parameters["required"] == ["rows"]


def test_await_and_return_at_the_top_level_work_in_the_function() -> None:
    code = promote_code("import asyncio\nawait asyncio.sleep(0)\nif rows:\n    return len(rows)", ["rows"])
    assert call(code, rows=[1, 2]) == 2


@pytest.mark.parametrize("code", ["def (", "x = '\0'", "(" * 3000, "#" * 40_000])
def test_code_that_cannot_be_read_is_refused(code: str) -> None:
    with pytest.raises(InvalidSkill):
        promote_code(code, [])
