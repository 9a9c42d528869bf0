"""Schemas that nobody would write: whatever a server lists, code, signatures and models get something valid."""

import ast
import json
import keyword
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.support.fuzz import fuzz_settings
from tests.unit.tools.wrappers.hostile import HOSTILE_NAMES, HOSTILE_SCHEMAS, HOSTILE_TEXTS

from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.schemas.model_schema import MAX_BYTES, MAX_DESCRIPTION, build_model_schema
from mcp_exec_tools.schemas.parameters import read_parameters
from mcp_exec_tools.wrappers import build_files
from mcp_exec_tools.wrappers.signature import format_signature

KEYWORDS = (
    *["type", "properties", "required", "items", "prefixItems", "additionalProperties", "patternProperties", "anyOf"],
    *["oneOf", "allOf", "not", "if", "then", "else", "enum", "const", "default", "nullable", "$ref", "$defs", "title"],
    *["description", "pattern", "format", "minimum", "exclusiveMinimum", "minLength", "minProperties", "dependencies"],
    *["dependentRequired", "dependentSchemas", "definitions", "additionalItems", "examples", "uniqueItems", "$schema"],
)
NAMES = st.sampled_from([*HOSTILE_NAMES[:12], "a", "b", "from", "$filter", "\xb5m", "\u03bcm", "", "a-b", "a.b", "__x"])
REFERENCES = st.sampled_from(
    ["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/anyOf/0", "#/x", "http://192.0.2.1/x"]
)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | NAMES
    | st.sampled_from(["string", "object", "array", "null", "number", "(", 2**70, 10**400, *HOSTILE_TEXTS[:6]])
)


def build_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return schemas whose keywords have the values that they should have, or any others."""
    named = st.dictionaries(NAMES, inner, max_size=4)
    listed = st.lists(inner, max_size=3)
    proper: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(["object", "string", "array", "integer"]) | st.lists(VALUES, max_size=3),
        "$ref": REFERENCES,
        "required": st.lists(NAMES, max_size=3),
        "$defs": st.fixed_dictionaries({"a": inner, "b": inner}),
        **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "dependencies"), named),
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems", "enum"), listed),
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2), max_size=2),
    }
    usual = st.fixed_dictionaries({}, optional={key: proper.get(key, inner) for key in KEYWORDS})
    return usual | st.dictionaries(st.sampled_from(KEYWORDS), inner | VALUES, max_size=5) | named | listed


SCHEMAS = st.recursive(VALUES, build_schemas, max_leaves=25)


def list_nodes(schema: Any) -> list[dict[str, Any]]:
    """Return all objects within a JSON value."""
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    own = [schema] if isinstance(schema, dict) else []
    return own + [node for child in children for node in list_nodes(child)]


def check_signature(schema: Any) -> None:
    [tool] = Catalog.from_tools("s", [{"name": "f", "inputSchema": schema, "outputSchema": schema}]).tools
    text = format_signature("f", tool.input_schema, tool.returned_schema)
    assert len(text) <= 2500
    assert text.isprintable()
    typescript = format_signature("f", tool.input_schema, tool.returned_schema, language="typescript")
    assert len(typescript) <= 2500
    assert typescript.isprintable()
    [definition] = ast.parse(f"async def {text}: ...").body
    assert isinstance(definition, ast.AsyncFunctionDef)
    names = list(read_parameters(tool.input_schema).code_names.values())
    assert [each.arg for each in definition.args.args] == names[: len(definition.args.args)]
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    assert len({unicodedata.normalize("NFKC", name) for name in names}) == len(names)


def check_wrappers(schema: Any) -> None:
    catalog = Catalog.from_tools("s", [{"name": "f", "inputSchema": schema, "outputSchema": schema}])
    for name, text in build_files([catalog], stubs=True).items():
        compile(text, name, "exec")
    for name, text in build_files([catalog], language="typescript").items():
        assert "\u2028" not in text, name
        assert text.count("/**") == text.count("*/"), name


def check_model_schema(schema: Any, description: str = "It works.") -> None:
    model = build_model_schema(schema if isinstance(schema, dict) else {}, description)
    Draft202012Validator.check_schema(model.schema)
    text = json.dumps(model.schema, allow_nan=False, ensure_ascii=False)
    assert len(text.encode()) <= MAX_BYTES * 1.1
    assert len(model.description.encode()) <= MAX_DESCRIPTION
    assert model.schema["type"] == "object"
    assert not model.schema.keys() & {"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "if", "then", "else"}
    definitions = model.schema.get("$defs", {})
    for node in list_nodes(model.schema):
        if isinstance(node.get("$ref"), str):
            assert node["$ref"].removeprefix("#/$defs/") in definitions
    again = build_model_schema(model.schema, model.description)
    assert (again.schema, again.description) == (model.schema, model.description)
    assert not again.parameters


@pytest.mark.fuzz
@fuzz_settings(60)
@given(schema=SCHEMAS)
def test_any_schema_gives_a_signature_wrappers_and_a_schema_for_models(schema: Any) -> None:
    check_signature(schema)
    check_wrappers(schema)
    check_model_schema(schema)


@pytest.mark.parametrize("number", range(len(HOSTILE_SCHEMAS)))
def test_hostile_schemas_are_valid_for_models(number: int) -> None:
    check_signature(HOSTILE_SCHEMAS[number])
    check_model_schema(HOSTILE_SCHEMAS[number])


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_hostile_texts_are_valid_for_models(text: str) -> None:
    about = {"type": "string", "description": text, "default": text, "enum": [text], "pattern": text, "title": text}
    schema = {"type": "object", "properties": {"a": about, text: about, "b": {"properties": {text: about}}}}
    check_signature(schema)
    check_model_schema(schema, text)
