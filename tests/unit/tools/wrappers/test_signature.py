"""One-line signatures of tools."""

import ast
from typing import Any

import pytest
from tests.unit.tools.wrappers.hostile import hostile_catalog

from mcp_exec_tools.wrappers.signature import format_signature

ISSUE = {
    "type": "object",
    "properties": {
        "state": {"enum": ["open", "closed"]},
        "limit": {"type": "integer", "default": 10},
        "labels": {"type": "array", "items": {"type": "string"}},
        "title": {"type": "string"},
        "owner": {"type": ["string", "null"]},
        "size": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/names"}]},
        "page": {"type": "integer", "default": 1},
    },
    "required": ["owner", "title", "page"],
    "$defs": {"names": {"type": "array", "items": {"type": "array", "items": {}}}},
}


def test_parameters_are_in_positional_order_with_their_types_and_defaults() -> None:
    assert format_signature("list_issues", ISSUE, {"type": "array", "items": {"type": "object"}}) == (
        "list_issues(owner: str | None, title: str, state: Literal['open', 'closed'] = None, limit: int = 10, "
        "labels: list[str] = None, size: float | list[list] = None, page: int = 1) -> list[dict]"
    )


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "f()"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": True}, "required": ["x"]}}}, "f(x: Any)"),
        ({"properties": {"x": {"$ref": "#/properties/x"}}}, "f(x: Any = None)"),
        (
            {"properties": {"x": {"enum": [str(n) for n in range(9)]}}},
            "f(x: Literal['0', '1', '2', '3', '4', '5', ...] = None)",
        ),
        ({"properties": {"x": {"enum": ["y" * 100]}}}, "f(x: str = None)"),
    ],
)
def test_what_is_not_simple_has_a_wide_type(schema: Any, text: str) -> None:
    assert format_signature("f", schema, None) == text


def test_signatures_are_one_bounded_line_whatever_a_schema_says() -> None:
    many = {"properties": {f"parameter_{number}": {"type": "string"} for number in range(1000)}}
    assert format_signature("f", many, None).endswith("=None, **more)")
    for tool in hostile_catalog().tools:
        text = format_signature(tool.function, tool.input_schema, tool.returned_schema)
        assert len(text) <= 2500
        assert text.isprintable()
        ast.parse(f"async def {text}: ...")
