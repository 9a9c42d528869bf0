"""Validation of results against hostile and large schemas."""

from typing import Any

import pytest

from mcp_exec_broker.core.errors import ErrorKind, ErrorReason, ToolCallError
from mcp_exec_broker.core.validation.values import OutputValidator

ROWS = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "object", "required": ["id"]}}}}


def check(schema: dict[str, Any], value: Any) -> None:
    OutputValidator().validate("there.give", value, schema, catalog_hash="1")


def test_of_a_long_list_the_first_rows_are_judged() -> None:
    rows = [{"id": number} for number in range(100_000)]
    check(ROWS, {"rows": rows})
    with pytest.raises(ToolCallError, match=r"rows\[20\] breaks required") as raised:
        check(ROWS, {"rows": [*rows[:20], {}, *rows]})
    assert (raised.value.kind, raised.value.reason) == (ErrorKind.PROTOCOL, ErrorReason.UNEXPECTED_RESULT)


def test_what_is_said_is_bounded_and_has_no_value_in_it() -> None:
    with pytest.raises(ToolCallError) as raised:
        check({"enum": ["x" * 10_000]}, "y" * 10_000)
    assert len(raised.value.message) < 500
    assert "yy" not in raised.value.message


@pytest.mark.parametrize("schema", [{"$schema": []}, {"type": 5}, {"properties": []}, {"$ref": "#/none"}])
def test_a_schema_that_is_none_lets_results_pass(schema: dict[str, Any]) -> None:
    check(schema, {"a": 1})


def test_schemas_are_kept_by_catalog_and_no_more_than_so_many() -> None:
    outputs = OutputValidator(max_schemas=2)
    for number in range(5):
        outputs.validate("a.b", {}, ROWS, catalog_hash=str(number))
    assert outputs.parsed_schemas == 2
