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


def test_a_signature_in_typescript_has_the_same_parameters_in_the_same_order() -> None:
    output = {"type": "array", "items": {"type": "object"}}
    assert format_signature("listIssues", ISSUE, output, language="typescript") == (
        'listIssues(owner: string | null, title: string, state?: "open" | "closed", limit: number = 10, '
        "labels?: string[], size?: number | any[][], page: number = 1): Promise<object[]>"
    )


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "f()"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": True}, "required": ["x"]}}}, "f(x: any)"),
        (
            {"properties": {"from": {"type": "string"}, "cik-A": {}, "class": {}}},
            "f(from?: string, cik_A?: any, class_?: any)",
        ),
        (
            {"properties": {"x": {"enum": [str(n) for n in range(9)]}}},
            'f(x?: "0" | "1" | "2" | "3" | "4" | "5" /* and more */)',
        ),
        ({"properties": {"x": {"enum": ["y" * 100]}}}, "f(x?: string)"),
        ({"properties": {"x": {"type": "integer", "default": "no number"}}}, "f(x?: number)"),
        ({"properties": {"x": {"type": "array", "items": {"enum": ["a", "b"]}}}}, 'f(x?: ("a" | "b")[])'),
        (
            {
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
                "additionalProperties": {"type": "integer"},
            },
            "f(input: { name: string } & Record<string, number>)",
        ),
        ({"additionalProperties": True}, "f(input: Record<string, any>)"),
        (
            {"if": {"properties": {"a": {"const": True}}}, "then": {"required": ["b"]}, "properties": {"a": {}}},
            "f(a?: any /* with a=true, pass b */, b?: any)",
        ),
        (
            {"anyOf": [{"properties": {"a": {"const": "*/"}}, "required": ["a"]}, {"required": ["b"]}]},
            'f(a?: "*/" /* pass either a="*\\/", or b */, b?: any)',
        ),
    ],
)
def test_what_is_not_simple_has_a_wide_type_in_typescript(schema: Any, text: str) -> None:
    assert format_signature("f", schema, None, language="typescript") == text


def test_signatures_in_typescript_are_one_bounded_line_whatever_a_schema_says() -> None:
    many = {"properties": {f"parameter_{number}": {"type": "string"} for number in range(1000)}}
    assert format_signature("f", many, None, language="typescript").endswith("?, ...more)")
    for tool in hostile_catalog().tools:
        text = format_signature(tool.function, tool.input_schema, tool.returned_schema, language="typescript")
        assert len(text) <= 2500
        assert text.isprintable()
