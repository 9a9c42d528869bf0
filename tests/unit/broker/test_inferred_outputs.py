"""Inferred output schemas: their limits, and the tools that have them."""

from mcp_exec_broker.core.catalog.entry import OutputInference
from mcp_exec_tools.catalog import Catalog, Tool

KEY = ("a", "s")


def tool(name: str) -> Tool:
    return Catalog.from_tools("s", [{"name": name, "inputSchema": {"type": "object"}}]).tools[0]


def infer(*names: str) -> OutputInference:
    inference = OutputInference()
    for name in names:
        inference.observe(KEY, tool(name), {"id": 1}, size=10)
    return inference


def test_the_schema_of_a_tool_that_returns_starts_empty() -> None:
    inference = infer("echo")
    inference.retain(KEY, [])
    inference.retain(KEY, ["echo"])
    inference.observe(KEY, tool("echo"), {"name": "x"}, size=10)
    assert set(inference.get_schemas(KEY)["echo"]["properties"]) == {"name"}


def test_tools_that_are_gone_leave_room_for_those_that_come() -> None:
    inference = infer(*(f"old-{number}" for number in range(120)))
    assert len(inference.get_schemas(KEY)) == 100
    inference.retain(KEY, ["new"])
    inference.observe(KEY, tool("new"), {"id": 1}, size=10)
    assert set(inference.get_schemas(KEY)) == {"new"}


def test_nothing_is_inferred_for_tools_of_single_users() -> None:
    inference = OutputInference()
    inference.retain(KEY, ["shared"])
    for name in ("shared", "personal"):
        inference.observe(KEY, tool(name), {"id": 1}, size=10)
    assert set(inference.get_schemas(KEY)) == {"shared"}


def test_the_schemas_of_a_recreated_server_start_empty() -> None:
    inference = infer("echo")
    inference.retain(KEY, ["echo"])
    inference.remove(KEY)
    assert inference.get_schemas(KEY) == {}
    inference.observe(KEY, tool("other"), {"id": 1}, size=10)
    assert set(inference.get_schemas(KEY)) == {"other"}
