"""Listings of tools with malformed entries."""

from typing import Any

import pytest
from mcp.client.session import ClientSession
from mcp_types import ListToolsResult
from mcp_types.methods import validate_server_result

from mcp_exec_broker.core.upstream.tool_listing import ToolCollector, repair_listing

Object = dict[str, Any]
OBJECT = {"type": "object"}
REVISIONS = ("2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28")


def repair(tool: Any, revision: str) -> ListToolsResult:
    raw = {"tools": [tool, {"name": "last", "inputSchema": OBJECT}], "ttlMs": 0, "cacheScope": "private"}
    repaired = repair_listing(raw | {"resultType": "complete"}, is_modern=revision == REVISIONS[-1])
    validate_server_result("tools/list", revision, repaired)
    return ListToolsResult.model_validate(repaired, by_name=False)


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, OBJECT),
        (True, OBJECT),
        (None, OBJECT),
        ([], OBJECT),
        ({"type": "string"}, OBJECT),
        ({"type": ["object", "null"]}, OBJECT),
        ({"type": 5}, OBJECT),
        ({"anyOf": [{"required": ["a"]}]}, {"type": "object", "anyOf": [{"required": ["a"]}]}),
        ({"type": "object", "properties": None, "required": "a"}, OBJECT),
        ({"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    ],
)
def test_every_input_schema_becomes_that_of_an_object(given: Any, kept: Object, revision: str) -> None:
    first, last = repair({"name": "t", "inputSchema": given}, revision).tools
    assert (first.input_schema, last.name) == (kept, "last")


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    "fields",
    [
        {"outputSchema": True},
        {"outputSchema": {"type": "array"}},
        {"outputSchema": {}},
        {"description": 5, "title": []},
        {"annotations": "none", "icons": 3, "execution": 5, "_meta": []},
    ],
)
def test_a_malformed_field_hides_no_tool(fields: Object, revision: str) -> None:
    assert [each.name for each in repair({"name": "t", "inputSchema": OBJECT, **fields}, revision).tools] == [
        "t",
        "last",
    ]


@pytest.mark.parametrize("entry", [{"inputSchema": OBJECT}, {"name": 5}, 5, None])
def test_an_entry_without_a_name_has_an_empty_one_and_is_left_out_with_the_reason(entry: Any) -> None:
    collector = ToolCollector()
    listed = [tool.model_dump(by_alias=True, exclude_none=True) for tool in repair(entry, REVISIONS[-1]).tools]
    collector.add_all(listed)
    assert [tool["name"] for tool in listed] == ["", "last"]
    assert [tool["name"] for tool in collector.tools] == ["last"]
    assert [(each.name, each.reason) for each in collector.omitted] == [("(no name)", "it has no name")]


def test_the_sdk_has_the_part_that_is_replaced() -> None:
    assert "_dispatcher" in ClientSession.__init__.__code__.co_names
