"""Conversion of schemas to Python types."""

import asyncio
from typing import Any

import pytest
from tests.unit.tools.wrappers.conftest import Load

from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.wrappers import build_files
from mcp_exec_tools.wrappers.python.types import TYPING, build_expression, format_definition
from mcp_exec_tools.wrappers.types import TypeBuilder


def source(schema: Any) -> str:
    types = TypeBuilder("T", reserved=TYPING, measure=lambda kind: len(build_expression(kind, "").flat()))
    types.define("T", schema, doc="A type.")
    return "\n".join(line for each in types.definitions for line in format_definition(each, types.names, prefix=""))


def field(schema: Any) -> str:
    """Return the type of a required field with the schema."""
    text = source({"type": "object", "properties": {"field": schema}, "required": ["field"]})
    return text.rpartition("field: ")[2]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({}, "Any"),
        (True, "Any"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"type": "string", "x-nullable": True}, "str | None"),
        ({"enum": ["a"], "nullable": True}, 'Literal["a"] | None'),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True}, "str | int | None"),
        ({"enum": ["a", "b"]}, 'Literal["a", "b"]'),
        ({"enum": ["a", 1, None]}, 'Literal["a", 1] | None'),
        ({"const": "a"}, 'Literal["a"]'),
        ({"const": False}, "Literal[False]"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "str | int"),
        ({"oneOf": [{"const": "a"}, {"const": "b"}, {"type": "null"}]}, 'Literal["a", "b"] | None'),
        ({"type": "array"}, "list[Any]"),
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, "list[str | int]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"type": "object", "properties": {"x": {}}}, "TField"),
        ({"$ref": "#/nowhere"}, "Any"),
        ({"$ref": "http://192.0.2.1/schema"}, "Any"),
    ],
)
def test_a_schema_is_a_type(schema: Any, kind: str) -> None:
    assert field(schema) == kind


def test_a_field_that_need_not_be_there_is_marked() -> None:
    text = source({"type": "object", "properties": {"b": {}, "a": {"type": "string"}, "c": {}}, "required": ["c", "b"]})
    assert text.splitlines()[-3:] == ["    c: Any", "    b: Any", "    a: NotRequired[str]"]


def test_keys_that_are_no_names_make_the_functional_form() -> None:
    text = source({"type": "object", "properties": {"from": {"type": "string"}, "$x": {}}, "required": ["from"]})
    assert text == 'T = TypedDict(\n    "T",\n    {\n        "from": str,\n        "$x": NotRequired[Any],\n    },\n)'


def test_definitions_are_named_once_and_may_name_themselves() -> None:
    node = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
        "required": ["children"],
    }
    text = source(
        {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/Node"}, "right": {"$ref": "#/$defs/Node"}},
            "required": ["left", "right"],
            "$defs": {"Node": node},
        }
    )
    assert 'children: list["TNode"]' in text
    assert "left: TNode\n    right: TNode" in text
    assert text.count("class ") == 2


def test_parts_of_allof_are_one_type() -> None:
    text = source(
        {
            "allOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
            "$defs": {"a": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
        }
    )
    assert "    a: str\n    b: int" in text


def wrapper(**tool: Any) -> str:
    return build_files([Catalog.from_tools("s", [{"name": "t", **tool}])])["s/t.py"]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (None, "Any"),
        ({"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}, "int"),
        ({"type": "object", "properties": {"result": {"type": "string"}}, "x-fastmcp-wrap-result": True}, "str"),
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
    ],
)
def test_the_result_is_typed_as_it_is_returned(schema: Any, kind: str) -> None:
    assert f"TResponse: TypeAlias = {kind}\n" in wrapper(outputSchema=schema)


def test_an_inferred_result_is_that_of_the_value_itself() -> None:
    schema = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
    text = wrapper(outputSchema=schema, inferred=True)
    assert "class TResponse(TypedDict):" in text
    assert "inferred from earlier results" in text


@pytest.mark.parametrize("form", [lambda schema: schema, lambda schema: {"$ref": "#/$defs/A", "$defs": {"A": schema}}])
def test_a_parameter_that_has_a_default_may_be_left_out_though_it_is_called_required(form: Any) -> None:
    row = {"type": "object", "properties": {"n": {"default": 1}}, "required": ["n"]}
    properties = {"id": {"type": "string"}, "limit": {"type": "integer", "default": 5}, "row": row}
    schema = form({"type": "object", "properties": properties, "required": ["id", "limit", "row"]})
    text = wrapper(inputSchema=schema, outputSchema={"type": "object", "properties": properties, "required": ["limit"]})
    assert '_PARAMETERS = {"id": True, "row": True, "limit": False}' in text
    fields = text.partition("class TInput(TypedDict):")[2].partition("class ")[0]
    assert fields.index("    id: str\n") < fields.index("    row: ") < fields.index("    limit: NotRequired[int]\n")
    assert "limit (integer, optional)" in text
    # The broker fills in defaults of parameters only: not of results, nor inside a parameter.
    assert "    limit: int\n" in text.partition("class TResponse(TypedDict):")[2]
    assert "    n: Any\n" in text


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"oneOf": [{"enum": ["a", "b"]}, {"type": "array"}]}, "one of 'a', 'b' or array"),
        ({"const": "a"}, "one of 'a'"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"$ref": "#/$defs/N"}, "number"),
        ({"anyOf": [{"$ref": "#/$defs/N"}, {"$ref": "#/$defs/N"}, {}]}, "number or any"),
        ({"$ref": "#/$defs/loop"}, "any"),
        ({"allOf": [{"type": "string"}, {"maxLength": 5}]}, "string"),
        ({"enum": [None, 1.5, True]}, "one of None, 1.5, True"),
        (True, "any"),
    ],
)
def test_a_docstring_says_what_kind_a_parameter_is(schema: Any, kind: str) -> None:
    known = {"N": {"type": "number"}, "loop": {"anyOf": [{"$ref": "#/$defs/loop"}]}}
    text = wrapper(inputSchema={"type": "object", "properties": {"p": schema}, "$defs": known})
    assert f"        p ({kind}, optional)" in text


@pytest.mark.parametrize(
    ("schema", "open_"),
    [
        ({"type": "object"}, True),
        ({"type": "object", "properties": {}}, False),
        ({"type": "object", "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {}}}, False),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": True}, True),
        ({"type": "object", "properties": {"aB": {}}, "additionalProperties": {"type": "string"}}, True),
        ({"type": "object", "patternProperties": {"^x-": {}}}, True),
    ],
)
def test_other_parameters_are_let_through_where_the_tool_takes_any(schema: Any, open_: bool, load: Load) -> None:
    package = load([Catalog.from_tools("s", [{"name": "t", "inputSchema": schema}])])("s")
    if open_:
        assert asyncio.run(package.t({"other": "1"}, another="2"))["arguments"] == {"other": "1", "another": "2"}
    else:
        with pytest.raises(ToolError, match="no parameter other"):
            asyncio.run(package.t({"other": "1"}))
    if "aB" in schema.get("properties", {}):
        assert asyncio.run(package.t(a_b=1))["arguments"] == {"aB": 1}
