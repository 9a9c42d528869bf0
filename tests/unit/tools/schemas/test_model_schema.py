"""Tools in the form that the interfaces of models accept."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.unit.tools.wrappers.conftest import real_catalogs

from mcp_exec_tools.catalog import Tool
from mcp_exec_tools.schemas.model_schema import MAX_BYTES, MAX_DESCRIPTION, build_model_schema

TEXT = {"type": "string"}
TOOLS = [(f"{each.server}.{tool.name}", tool) for each in real_catalogs() for tool in each.tools]


def objects(*names: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": dict.fromkeys(names, TEXT), **more}


@pytest.mark.parametrize("tool", [tool for _, tool in TOOLS], ids=[name for name, _ in TOOLS])
def test_the_schema_of_a_real_tool_is_the_servers_own(tool: Tool) -> None:
    model = build_model_schema(tool.input_schema, tool.description)
    own = {key: value for key, value in tool.input_schema.items() if key != "$schema"}
    assert model.schema == {"properties": {}, **own}
    assert model.description.startswith(tool.description[:1900].rstrip())
    Draft202012Validator.check_schema(model.schema)


@pytest.mark.parametrize(
    ("schema", "note"),
    [
        (
            {"anyOf": [objects("content", required=["content"]), objects("source_url", required=["source_url"])]},
            "Pass either content, or source_url, or both.",
        ),
        (objects("content", "source_url", oneOf=[{"required": ["content"]}, {"required": ["source_url"]}]),
         "Pass either content, or source_url."),
        (objects("content", "source_url", **{"not": {"required": ["content", "source_url"]}}),
         "Do not pass content and source_url together."),
        (objects("content", "source_url", dependentRequired={"content": ["source_url"]}),
         "With content, pass source_url too."),
        (
            {"$ref": "#/$defs/All", "$defs": {"All": {"allOf": [objects("content"), objects("source_url")]}}},
            "",
        ),
        ({**objects("content", "source_url"), "enum": [{"content": "x"}]}, ""),
    ],
)  # fmt: skip
def test_the_root_is_a_plain_object_and_the_rest_is_a_sentence(schema: Any, note: str) -> None:
    model = build_model_schema(schema, "Attach it.")
    assert model.schema == objects("content", "source_url")
    assert model.description == "\n\n".join(filter(None, ["Attach it.", note]))


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": None}, {"type": "string"}, {"$ref": "#/x"}])
def test_every_root_has_properties(schema: Any) -> None:
    assert build_model_schema(schema).schema == {"type": "object", "properties": {}}


def test_names_that_interfaces_refuse_are_told_and_restored_in_calls() -> None:
    rows = {"type": "array", "items": objects("größe", "plain", required=["größe"])}
    schema = objects("$filter", "cik-A", "日本語", "x" * 80, "", required=["$filter"])
    schema["properties"] = {**schema["properties"], "rows": rows}
    model = build_model_schema(schema)
    shown = list(model.schema["properties"])
    assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name) for name in _list_names(model.schema))
    assert shown[:3] == ["filter", "cik-A", "parameter_3"]
    assert model.schema["required"] == ["filter"]
    assert model.schema["properties"]["parameter_3"]["description"] == '"日本語"'
    [inner] = model.schema["properties"]["rows"]["items"]["required"]
    called = {"filter": "a", "parameter_3": "b", shown[3]: "c", "rows": [{inner: "d", "plain": "e"}], "$filter2": 1}
    assert model.restore(called) == {
        "$filter": "a",
        "日本語": "b",
        "x" * 80: "c",
        "rows": [{"größe": "d", "plain": "e"}],
        "$filter2": 1,
    }


def test_references_lead_to_definitions_at_the_root_or_nowhere() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/definitions/Node"}, "top": {"$ref": "#"}}}
    schema = {
        **objects("a"),
        "properties": {
            "node": {"$ref": "#/definitions/Node", "description": "A node."},
            "same": {"$ref": "#/properties/node"},
            "lost": {"$ref": "#/definitions/Absent", "description": "Anything."},
            "foreign": {"$ref": "https://192.0.2.1/schema"},
        },
        "definitions": {"Node": node, "Unused": {"type": "string"}},
    }
    model = build_model_schema(schema)
    assert model.schema["properties"]["node"] == {"$ref": "#/$defs/Node", "description": "A node."}
    assert model.schema["properties"]["lost"] == {"description": "Anything."}
    assert model.schema["properties"]["foreign"] == {}
    assert set(model.schema["$defs"]) == {"Node", "Whole"}
    assert model.schema["$defs"]["Node"]["properties"]["next"] == {"$ref": "#/$defs/Node"}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 0}),
        ({"items": [TEXT, {"type": "null"}]}, {"prefixItems": [TEXT, {"type": "null"}]}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "x-nullable": True}, {"type": ["string", "null"]}),
        ({"enum": ["a"], "nullable": True}, {"enum": ["a", None]}),
        ({"type": "string", "enum": ["a", None], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        (
            {"anyOf": [TEXT, {"type": "integer"}], "nullable": True, "description": "d"},
            {"anyOf": [{"anyOf": [TEXT, {"type": "integer"}]}, {"type": "null"}], "description": "d"},
        ),
        ({"type": "any", "required": True}, {}),
        ({"type": "integer", "default": "ten"}, {"type": "integer"}),
        ({"type": "number", "default": float("nan")}, {"type": "number"}),
        ({"type": "string", "pattern": "(?!"}, {"type": "string", "description": "Pattern: (?!"}),
        ({"anyOf": []}, {}),
        ({"enum": []}, {}),
        ({"anyOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, {"type": "null"}]}),
        (True, {}),
    ],
)
def test_a_property_is_valid_in_draft_2020_12(given: Any, shown: Any) -> None:
    assert build_model_schema({"properties": {"a": given}}).schema["properties"]["a"] == shown


def test_a_large_schema_is_shortened_and_says_so() -> None:
    columns = {f"column_{number}": {**TEXT, "description": "A column. " * 50} for number in range(400)}
    model = build_model_schema({"properties": {"row": {"type": "object", "properties": columns}, **columns}}, "Insert.")
    assert len(str(model.schema)) < MAX_BYTES * 1.2
    assert "The schema of this tool is shortened" in model.description
    assert "There are 201 more parameters" in model.description


def test_a_description_is_cut_before_the_rules() -> None:
    schema = objects("a", "b", anyOf=[{"required": ["a"]}, {"required": ["b"]}])
    model = build_model_schema(schema, "Counts. " + "ä" * 100_000)
    assert MAX_DESCRIPTION - 10 < len(model.description.encode()) <= MAX_DESCRIPTION
    assert model.description.startswith("Counts. ää")
    assert model.description.endswith(" ...\n\nPass either a, or b, or both.")


def _list_names(schema: Any) -> Iterator[str]:
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        yield from schema["properties"]
    for child in children:
        yield from _list_names(child)
