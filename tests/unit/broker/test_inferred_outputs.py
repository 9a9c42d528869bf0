"""What is remembered of tools' results: as much as there is room for, and of tools that there are."""

from typing import Any

from mcp_exec_broker.catalog.inferred_outputs import OutputInference
from mcp_exec_broker.upstream.servers import ToolServer
from mcp_exec_tools.catalog import Catalog, Tool

KEY = ("a", "s")


def server(**inferred: Any) -> ToolServer:
    """A ToolServer whose status remembers these."""
    meta = {"namespace": "a", "name": "s", "generation": 1}
    return ToolServer.from_object(
        {"metadata": meta, "spec": {"url": "http://s"}, "status": {"inferredOutputs": inferred}}
    )


def tool(name: str) -> Tool:
    return Catalog.from_tools("s", [{"name": name, "inputSchema": {"type": "object"}}]).tools[0]


def learned(*names: str) -> OutputInference:
    made = OutputInference()
    for name in names:
        made.observe(KEY, tool(name), {"id": 1}, size=10)
    return made


def test_what_was_learned_of_a_tool_goes_with_the_tool() -> None:
    made = learned("stays", "goes")
    made.retain(KEY, ["stays", "new"])
    assert set(made.get_schemas(KEY)) == {"stays"}


def test_a_tool_that_comes_back_is_learned_anew() -> None:
    made = learned("echo")
    made.retain(KEY, [])
    made.retain(KEY, ["echo"])
    made.observe(KEY, tool("echo"), {"name": "x"}, size=10)
    assert set(made.get_schemas(KEY)["echo"]["properties"]) == {"name"}


def test_a_status_that_still_remembers_a_tool_that_is_gone_does_not_bring_it_back() -> None:
    made = OutputInference()
    made.restore(server(gone={"type": "object"}, there={"type": "object"}))
    assert set(made.get_schemas(KEY)) == {"gone", "there"}  # nothing was listed yet
    made.retain(KEY, ["there"])
    made.restore(server(gone={"type": "object"}, there={"type": "object"}))
    assert set(made.get_schemas(KEY)) == {"there"}


def test_tools_that_are_gone_leave_room_for_those_that_come() -> None:
    made = learned(*(f"old-{number}" for number in range(120)))
    assert len(made.get_schemas(KEY)) == 100
    made.retain(KEY, ["new"])
    made.observe(KEY, tool("new"), {"id": 1}, size=10)
    assert set(made.get_schemas(KEY)) == {"new"}


def test_of_tools_that_the_server_lists_for_some_users_alone_nothing_is_learned() -> None:
    made = OutputInference()
    made.retain(KEY, ["shared"])
    for name in ("shared", "personal"):
        made.observe(KEY, tool(name), {"id": 1}, size=10)
    assert set(made.get_schemas(KEY)) == {"shared"}


def test_a_server_that_is_made_anew_is_learned_anew() -> None:
    made = learned("echo")
    made.retain(KEY, ["echo"])
    made.remove(KEY)
    assert made.get_schemas(KEY) == {}
    made.observe(KEY, tool("other"), {"id": 1}, size=10)
    assert set(made.get_schemas(KEY)) == {"other"}
