"""The parameters of a skill are read from its code, which is never executed and may be hostile."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fuzz import fuzz_settings

from mcp_exec_common.skills.interface import InvalidSkill, read_interface

CODE = '''
async def run(rows: list[dict], path: str | None = None, *, mode: Literal["a", "b"] = "a", limit: int = 10, f=print):
    """Do a thing.

    More.

    Args:
        rows: the rows.
        limit: at most so many.
    """
'''


def test_signature_and_docstring_become_a_schema() -> None:
    interface = read_interface(CODE)
    assert interface.summary == "Do a thing."
    assert interface.parameters == {
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": {"type": "object"}, "description": "the rows."},
            "path": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "mode": {"enum": ["a", "b"], "default": "a"},
            "limit": {"type": "integer", "default": 10, "description": "at most so many."},
            "f": {},
        },
        "required": ["rows"],
        "additionalProperties": False,
    }


def test_any_keyword_is_allowed_if_run_takes_it() -> None:
    assert read_interface("def run(**options): ...").parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = 1", "no function `run`"),
        ("run = lambda: 1", "no function `run`"),
        ("if True:\n    def run(): ...", "no function `run`"),
        ("def run(a, /): ...", "positional-only"),
        ("def run(:", "line 1"),
        ("def run(): " + "(" * 5000, "nested too deeply|line 1"),
        ("#" * 40_000, "no function `run`"),
        ("def run(): '\0'", "no Python"),
    ],
)
def test_code_without_a_usable_function_is_refused_with_the_reason(code: str, problem: str) -> None:
    with pytest.raises(InvalidSkill, match=problem):
        read_interface(code)


def test_long_code_is_not_parsed_and_any_arguments_are_allowed() -> None:
    assert read_interface("#" * 40_000 + "\nasync def run(a): ...").parameters == {"type": "object"}


@pytest.mark.parametrize("default", ["9" * 40, "10**5", "'" + "x" * 600 + "'", "1e999", "b'x'", "[" * 50 + "]" * 50])
def test_a_default_that_json_cannot_show_is_left_out(default: str) -> None:
    parameters = read_interface(f"def run(a={default}): ...").parameters
    assert len(json.dumps(parameters)) < 400


def test_a_hostile_interface_is_bounded() -> None:
    many = ", ".join(f"a{number}: Literal['{'x' * 50}']" for number in range(400))
    assert len(json.dumps(read_interface(f"def run({many}): ...").parameters)) < 20_000
    assert read_interface("def run(a='\\ud800'): ...").parameters["properties"]["a"]["default"] == "?"


@given(st.text(max_size=200))
@fuzz_settings(60)
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    for code in (text, f"def run({text}): ...", f'def run(a):\n    """{text}\n\n    Args:\n        {text}"""'):
        try:
            result: Any = read_interface(code).parameters
        except InvalidSkill:
            continue
        json.dumps(result, ensure_ascii=False).encode()
