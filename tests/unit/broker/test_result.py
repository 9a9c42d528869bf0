"""Conversion of MCP results to Python values."""

from typing import Any

import pytest

from mcp_exec_broker.core.calls.response import ContentBlocks, PythonValue, format_error_text, parse_value

WRAPPER = {"type": "object", "properties": {"result": {}}, "required": ["result"]}


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": each} for each in texts]


@pytest.mark.parametrize(
    ("result", "schema", "value"),
    [
        ({"content": text("5"), "structuredContent": {"result": 5}}, WRAPPER, 5),
        ({"content": text("5"), "structuredContent": {"result": 5}}, {"x-fastmcp-wrap-result": True}, 5),
        ({"content": [], "structuredContent": {"result": 5}}, None, {"result": 5}),
        ({"content": [], "structuredContent": {"result": 5, "more": 1}}, WRAPPER, {"result": 5, "more": 1}),
        (
            {"content": [], "structuredContent": {"result": 5}},
            {"properties": {"result": {}, "error": {}}, "required": ["result"]},
            {"result": 5},
        ),
        ({"content": text("0"), "structuredContent": 0}, None, 0),
        ({"content": text("[]"), "structuredContent": []}, None, []),
        ({"content": text("null"), "structuredContent": None}, None, None),
        ({"content": text('{"a": 1}')}, None, {"a": 1}),
        ({"content": text(" [1, 2]\n")}, None, [1, 2]),
        ({"content": text("17")}, None, "17"),
        ({"content": text('"word"')}, None, '"word"'),
        ({"content": text("{not json")}, None, "{not json"),
        ({"content": text("[NaN]")}, None, "[NaN]"),
        ({"content": text('{"a": 1, "a": 2}')}, None, '{"a": 1, "a": 2}'),
        ({"content": text('{"id": 18446744073709551619}')}, None, {"id": 2**64 + 3}),
        ({"content": text("[" * 100_000)}, None, "[" * 100_000),
        ({"content": text('{"a": 1}', "[2]")}, None, [{"a": 1}, [2]]),
        ({"content": text("one", '{"a": 1}')}, None, 'one\n{"a": 1}'),
        ({"content": text("[1,", "2]")}, None, [1, 2]),
        ({"content": []}, None, None),
        ({}, None, None),
    ],
)
def test_a_value_is_what_code_wants(result: dict[str, Any], schema: dict[str, Any] | None, value: Any) -> None:
    assert parse_value(result, schema, modern=True) == PythonValue(value=value)


def test_null_counts_where_the_protocol_or_the_tool_says_that_it_may_be_a_value() -> None:
    result = {"content": text("said"), "structuredContent": None}
    assert parse_value(result, None, modern=False) == PythonValue(value="said")
    assert parse_value(result, {"type": "null"}, modern=False) == PythonValue(value=None)
    assert parse_value(result, None, modern=True) == PythonValue(value=None)
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    assert parse_value({"content": [image], "structuredContent": None}, None, modern=False) == ContentBlocks(
        content=[image]
    )


def test_what_is_not_text_stays_as_it_came() -> None:
    content = [*text("look"), {"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    assert parse_value({"content": content}, None, modern=True) == ContentBlocks(content=content)
    both = parse_value({"content": content, "structuredContent": {"a": 1}}, None, modern=True)
    assert both.to_line("s.t") == {"type": "result", "tool": "s.t", "content": content, "structured": {"a": 1}}


def test_an_error_says_what_the_tool_said() -> None:
    assert format_error_text({"content": text("one", "two")}) == "one\ntwo"
    assert format_error_text({"content": [], "structuredContent": {"why": "no"}}) == '{"why": "no"}'
    assert format_error_text({"content": text(" ")}) == "the tool failed without a message"
