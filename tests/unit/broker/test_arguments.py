"""Validation of arguments against schemas, which may be hostile."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_broker.core.errors import ErrorKind, ErrorReason, ToolCallError
from mcp_exec_broker.core.validation.values import ArgumentValidator, describe_left_out, list_parameters
from mcp_exec_broker.features.scanning.tokenizer import Tokenizer
from mcp_exec_tools.catalog import Catalog, Tool

ISSUE = {
    "type": "object",
    "properties": {
        "owner": {"type": "string"},
        "repo": {"type": "string"},
        "perPage": {"type": "integer", "minimum": 1},
        "state": {"enum": ["open", "closed"]},
        "labels": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["owner", "repo"],
}


def tool(schema: dict[str, Any]) -> Tool:
    return Catalog.from_tools("github", [{"name": "list_issues", "inputSchema": schema}]).tools[0]


def check(
    schema: dict[str, Any], arguments: dict[str, Any], *, validator: ArgumentValidator | None = None
) -> dict[str, Any]:
    return (validator or ArgumentValidator()).validate(tool(schema), arguments, catalog_hash="1").arguments


def refusal(schema: dict[str, Any], arguments: dict[str, Any]) -> ToolCallError:
    with pytest.raises(ToolCallError) as raised:
        check(schema, arguments)
    assert (raised.value.kind, raised.value.reason) == (ErrorKind.ERROR, ErrorReason.INVALID_ARGUMENTS)
    return raised.value


def test_good_arguments_pass_as_they_are() -> None:
    good = {"owner": "o", "repo": "r", "perPage": 5, "state": "open", "labels": ["a"]}
    assert check(ISSUE, good) == good


def test_none_for_what_can_be_left_out_leaves_it_out() -> None:
    given = {"owner": "o", "repo": "r", "perPage": None, "state": None, "labels": None}
    assert check(ISSUE, given) == {"owner": "o", "repo": "r"}


def test_a_parameter_is_known_in_snake_and_in_camel_case_if_it_is_the_only_one_of_this_spelling() -> None:
    assert check(ISSUE, {"Owner": "o", "repo": "r", "per_page": 5}) == {"owner": "o", "repo": "r", "perPage": 5}
    with_default = {"properties": {"projectId": {"default": "p"}, "from": {}}, "required": ["projectId"]}
    assert check(with_default, {"project_id": "q", "from_": 1}) == {"projectId": "q", "from": 1}
    assert check(ISSUE, {"owner": "o", "repo": "r", "per_page": None}) == {"owner": "o", "repo": "r"}
    two = {"properties": {"fooBar": {}, "foo_bar": {}}}
    assert "unknown: FooBar" in refusal(two, {"FooBar": 1}).message
    assert "unknown: per_page" in refusal(ISSUE, {"owner": "o", "repo": "r", "perPage": 1, "per_page": 2}).message
    assert "unknown: PerPage" in refusal(ISSUE, {"owner": "o", "repo": "r", "per_page": 1, "PerPage": 2}).message
    opened = {"properties": {"fooBar": {}}, "additionalProperties": True}
    assert check(opened, {"foo_bar": 1}) == {"foo_bar": 1}
    assert "unknown: 日本" in refusal({"properties": {"日": {}}}, {"日本": 1}).message


NULLABLE = [
    {},
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"enum": ["a", None]},
    {"$ref": "#/$defs/nullable"},
    {"$ref": "https://elsewhere.test/schema"},
    {"$ref": "#/$defs/loop"},
    True,
    {"const": None},
    {"oneOf": [{"type": "integer"}, {"type": "null"}]},
    {"anyOf": [{"type": "string"}, {"enum": ["a", None]}]},
    {"allOf": [{"type": ["string", "null"]}, {"description": "d"}]},
    {"type": "string", "nullable": True},
    {"type": "string", "x-nullable": True},
    {"type": "string", "nullable": True, "minLength": 2, "format": "date"},
    {"enum": ["a", "b"], "nullable": True},
    {"const": "a", "nullable": True},
    {"type": "array", "items": {"type": "string"}, "nullable": True},
    {"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True},
    {"anyOf": [{"type": "string", "nullable": True}, {"type": "integer"}]},
    {"allOf": [{"$ref": "#/$defs/text"}], "nullable": True},
    {"$ref": "#/$defs/text", "nullable": True},
    {"$ref": "#/$defs/openapi"},
]
NOT_NULLABLE = [
    {"type": "string"},
    {"type": "string", "nullable": False},
    {"type": "string", "nullable": "true"},
    {"enum": ["a", "null"]},
    {"const": "a"},
    {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"allOf": [{"type": "string", "nullable": True}, {"type": "string"}]},
    {"$ref": "#/$defs/text"},
    {"not": {"type": "null"}},
]
DEFINITIONS = {
    "nullable": {"type": ["integer", "null"]},
    "loop": {"$ref": "#/$defs/loop"},
    "text": {"type": "string"},
    "openapi": {"type": "string", "nullable": True},
}


@pytest.mark.parametrize("schema", NULLABLE)
def test_none_travels_where_the_schema_takes_it_or_can_not_be_judged(schema: Any) -> None:
    given = {"a": None}
    assert check({"type": "object", "properties": {"a": schema}, "$defs": DEFINITIONS}, given) == given


@pytest.mark.parametrize("schema", NOT_NULLABLE)
def test_none_that_the_schema_refuses_is_named_as_left_out(schema: Any) -> None:
    about = tool({"type": "object", "properties": {"a": schema, "b": {}}, "$defs": DEFINITIONS})
    valid = ArgumentValidator().validate(about, {"a": None, "b": None}, catalog_hash="1")
    assert (valid.arguments, valid.left_out) == ({"b": None}, ["a"])
    assert describe_left_out(valid.left_out) == (
        "None was not sent for a: the tool's schema does not accept null there."
    )


@pytest.mark.parametrize("schema", [{"type": "string", "nullable": True}, {"$ref": "#/$defs/openapi"}])
def test_null_inside_of_lists_and_objects_is_checked_the_same_way(schema: Any) -> None:
    properties = {"a": {"type": "array", "items": schema}, "b": {"type": "object", "properties": {"c": schema}}}
    given = {"a": [None, "x"], "b": {"c": None}}
    assert check({"type": "object", "properties": properties, "$defs": DEFINITIONS}, given) == given


def test_none_in_what_is_needed_unknown_or_inside_is_left_to_the_check() -> None:
    assert "owner: None is not of type 'string'" in refusal(ISSUE, {"owner": None, "repo": "r"}).message
    assert refusal(ISSUE, {"owner": "o", "repo": "r", "perPages": None}).suggestions == ["perPage"]
    assert "labels[0]: None is not" in refusal(ISSUE, {"owner": "o", "repo": "r", "labels": [None]}).message


TABLES = {
    "type": "object",
    "properties": {
        "project": {"type": "string"},
        "schemas": {"type": "array", "items": {"type": "string"}, "default": ["public"]},
        "verbose": {"type": "boolean", "default": False},
        "limit": {"type": "integer", "default": 10},
    },
    "required": ["project", "schemas", "verbose"],
}


def test_what_is_needed_and_has_a_default_need_not_be_given() -> None:
    defaults = {"project": "p", "schemas": ["public"], "verbose": False}
    assert check(TABLES, {"project": "p"}) == defaults
    assert check(TABLES, {"project": "p", "schemas": None, "verbose": True}) == defaults | {"verbose": True}
    failure = refusal(TABLES, {"verbose": True})
    assert failure.parameters == ["project*", "schemas", "verbose", "limit"]
    assert failure.message.endswith("missing: project")


def test_a_default_that_is_none_is_sent_and_one_that_the_schema_refuses_is_none() -> None:
    nullable = {"properties": {"a": {"type": ["string", "null"], "default": None}}, "required": ["a"]}
    assert check(nullable, {}) == {"a": None}
    wrong = {"properties": {"a": {"type": "string", "default": None}}, "required": ["a"]}
    assert refusal(wrong, {}).message.endswith("missing: a")
    longer = {"properties": {"a": {"type": "string", "default": "x", "minLength": 2}}, "required": ["a"]}
    assert refusal(longer, {}).message.endswith("missing: a")
    assert check(longer, {"a": "xy"}) == {"a": "xy"}


def test_a_reference_in_the_schema_says_whether_none_is_taken() -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/text"}}, "$defs": {"text": {"type": "string"}}}
    assert check(schema, {"a": None}) == {}


def test_required_parameters_are_marked_by_a_star() -> None:
    assert list_parameters(tool(ISSUE)) == ["owner*", "repo*", "perPage", "state", "labels"]
    assert refusal(ISSUE, {}).parameters == ["owner*", "repo*", "perPage", "state", "labels"]


def test_a_missing_parameter_is_named() -> None:
    assert "missing: repo" in refusal(ISSUE, {"owner": "o"}).message


@pytest.mark.parametrize("spelling", ["perPages", "perPag", "prePage"])
def test_an_unknown_parameter_gets_what_was_probably_meant(spelling: str) -> None:
    failure = refusal(ISSUE, {"owner": "o", "repo": "r", spelling: 5})
    assert failure.suggestions == ["perPage"]
    assert f"unknown: {spelling} (did you mean perPage?)" in failure.message


def test_a_value_that_is_wrong_is_named_by_its_path() -> None:
    failure = refusal(ISSUE, {"owner": "o", "repo": "r", "labels": ["a", 2]})
    assert "labels[1]: 2 is not of type 'string'" in failure.message


def test_a_value_that_is_none_of_a_list_gets_what_was_probably_meant() -> None:
    assert refusal(ISSUE, {"owner": "o", "repo": "r", "state": "opened"}).suggestions == ["open"]


def test_an_unknown_name_in_an_object_gets_what_was_probably_meant() -> None:
    inner = {"type": "object", "properties": {"path": {}}, "additionalProperties": False}
    failure = refusal({"type": "object", "properties": {"file": inner}}, {"file": {"pathh": 1}})
    assert failure.suggestions == ["path"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {}}, "patternProperties": {"^b": {}}},
        {"type": "object", "properties": {"a": {}}, "$ref": "https://elsewhere.test/schema"},
    ],
)
def test_an_open_schema_takes_unknown_parameters(schema: dict[str, Any]) -> None:
    check(schema, {"a": 1, "b": 2})


def test_parameters_of_parts_and_references_are_known() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {}},
        "allOf": [{"$ref": "#/$defs/more"}],
        "anyOf": [{"properties": {"c": {}}}],
        "$defs": {"more": {"properties": {"b": {}}}},
    }
    check(schema, {"a": 1, "b": 2, "c": 3})
    assert "unknown: d" in refusal(schema, {"d": 4}).message


def test_a_schema_that_takes_nothing_refuses_everything() -> None:
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    check(closed, {})
    assert "unknown: a" in refusal(closed, {"a": 1}).message


def test_draft_7_is_understood() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"items": [{"type": "string"}, {"type": "integer"}]}},
    }
    check(schema, {"pair": ["a", 1]})
    refusal(schema, {"pair": [1, 1]})


def test_items_are_compared_as_json_has_them() -> None:
    schema = {"type": "object", "properties": {"ids": {"uniqueItems": True}}}
    check(schema, {"ids": [1, "1", True, {"a": 1}, {"a": 2}, [1], 0, False]})
    refusal(schema, {"ids": [{"a": 1.0}, {"a": 1}]})


def test_patterns_and_names_by_pattern_are_held_to() -> None:
    schema = {
        "type": "object",
        "properties": {
            "sha": {"pattern": "^[0-9a-f]{7,40}$"},
            "env": {"patternProperties": {"^[A-Z]+$": {"type": "string"}}, "additionalProperties": False},
        },
    }
    check(schema, {"sha": "abcdef0", "env": {"PATH": "x"}})
    refusal(schema, {"sha": "no"})
    refusal(schema, {"env": {"PATH": 1}})
    assert "unknown: path" in refusal(schema, {"env": {"path": "x"}}).message


def _of(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}}


def _exploding(levels: int) -> dict[str, Any]:
    defs = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs | {f"d{levels}": {}}}


def _branching(ways: int) -> dict[str, Any]:
    again = {keyword: [{"$ref": "#/$defs/a"}] * ways for keyword in ("anyOf", "allOf", "oneOf")}
    return again | {"$defs": {"a": again}}


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        pytest.param(_of(pattern="^(a+)+$"), {"a": "a" * 5000 + "b"}, id="regex"),
        pytest.param(_of(pattern="(a|a)*b\\1"), {"a": "a" * 5000}, id="back"),
        pytest.param(_of(pattern="[" * 100), {"a": "a"}, id="no-regex"),
        pytest.param(
            {"properties": {"a": {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}}},
            {"a": {"a" * 5000 + "b": 1}},
            id="names",
        ),
        pytest.param({"properties": {"a": {"$ref": "#"}}, "allOf": [{"$ref": "#"}]}, {"a": {}}, id="loop"),
        pytest.param({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {"a": 1}, id="own-loop"),
        pytest.param(_exploding(40), {"a": 1}, id="exponential"),
        pytest.param(
            {"type": "object", "properties": {"a": {"uniqueItems": True}}},
            {"a": [{"n": n} for n in range(20_000)]},
            id="unique",
        ),
        pytest.param(_of(allOf=[{"uniqueItems": True}] * 300), {"a": list(range(30_000))}, id="long-steps"),
        pytest.param(
            _of(patternProperties={f"^q{n}": {} for n in range(2000)}),
            {"a": dict.fromkeys(map(str, range(5000)))},
            id="patterns-by-names",
        ),
        pytest.param(
            _of(patternProperties={f"^q{n}": {} for n in range(2000)}, additionalProperties={}),
            {"a": dict.fromkeys(map(str, range(5000)))},
            id="names-by-patterns",
        ),
        pytest.param(_branching(64), {"a": 1}, id="branching"),
        pytest.param({"$schema": []}, {"a": 1}, id="list-for-a-dialect"),
        pytest.param({"$schema": 5}, {"a": 1}, id="number-for-a-dialect"),
        pytest.param({"$id": 5}, {"a": 1}, id="number-for-an-id"),
        pytest.param(
            _exploding(40) | {"properties": {str(n): {"$ref": "#/$defs/d0"} for n in range(5000)}},
            dict.fromkeys(map(str, range(5000))),
            id="nones",
        ),
        pytest.param(_of(type=17), {"a": 1}, id="no-type"),
        pytest.param(_of(minimum="x"), {"a": 1}, id="no-number"),
        pytest.param({"type": "object", "properties": 5, "required": "a"}, {"a": 1}, id="no-properties"),
        pytest.param(_of(**{"$ref": "file:///etc/passwd"}), {"a": 1}, id="file"),
        pytest.param(_of(**{"$ref": "http://127.0.0.1:1/x"}), {"a": 1}, id="remote"),
    ],
)
def test_a_hostile_schema_holds_nothing_up(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    try:
        check(schema, arguments)
    except ToolCallError as failure:
        assert len(failure.message) < 1000  # noqa: PT017


def test_a_schema_that_takes_too_long_is_not_evaluated_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    found = ArgumentValidator()
    for _ in range(5):
        check(_exploding(40), {"a": 1}, validator=found)
    assert caplog.text.count("takes too long") == 1
    with pytest.raises(ToolCallError, match="unknown: b"):
        check(_exploding(40), {"b": 1}, validator=found)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values), st.dictionaries(st.text(), json_values))
def test_whatever_the_schema_a_check_ends_with_a_verdict(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    try:
        check(schema, arguments)
    except ToolCallError as failure:
        assert failure.reason is ErrorReason.INVALID_ARGUMENTS  # noqa: PT017


def test_a_token_is_as_good_as_what_it_stands_for() -> None:
    tokenizer = Tokenizer()
    card = tokenizer.tokenize("CARD", 4111111111111111)
    schema = {"type": "object", "properties": {"card": {"type": "integer"}, "n": {"type": "integer"}}}
    found = tool(schema)
    ArgumentValidator().validate(found, {"card": card}, catalog_hash="1", detokenize=tokenizer.detokenize)
    with pytest.raises(ToolCallError):
        ArgumentValidator().validate(found, {"card": card}, catalog_hash="1")
    mail = tokenizer.tokenize("EMAIL", "a@example.com")
    with pytest.raises(ToolCallError) as raised:
        ArgumentValidator().validate(found, {"n": mail}, catalog_hash="1", detokenize=tokenizer.detokenize)
    assert "a@example.com" not in raised.value.message
    assert str(mail) in raised.value.message


def test_validators_are_kept_by_catalog_and_no_more_than_so_many() -> None:
    found = ArgumentValidator(max_schemas=2)
    for number in range(5):
        found.validate(tool(ISSUE), {"owner": "o", "repo": "r"}, catalog_hash=str(number))
    assert found.parsed_schemas == 2
