"""Tools as MCP clients see them: their names, their order, and who may use them."""

import re
from typing import Any

from mcp_exec_gateway.core.http.limits import CallerThreads
from mcp_exec_gateway.features.tools.catalogs import MAX_NAME, ExportedTools, ToolRights, ToolSelection
from mcp_exec_tools.catalog import Catalog

ALL = ToolRights(allow=())


def export(direct: dict[str, frozenset[str]] | None = None, **servers: list[str]) -> ExportedTools:
    """Export tools by server; `_` in a server's name stands for `-`."""
    catalogs = [
        Catalog.from_tools(server.replace("_", "-"), [{"name": name} for name in names])
        for server, names in servers.items()
    ]
    return ExportedTools.build(catalogs, direct=direct or {})


async def list_names(tools: ExportedTools, rights: ToolRights = ALL, **options: Any) -> list[str]:
    return [tool.name for tool in (await select(tools, rights, **options)).tools]


async def select(tools: ExportedTools, rights: ToolRights, caller: str = "key", **options: Any) -> ToolSelection:
    return await tools.select(rights, caller=caller, threads=CallerThreads(), **options)


async def test_tools_are_listed_by_server_and_name_in_alphabetical_order() -> None:
    tools = export(github=["list_issues", "create_issue"], a_docs=["get-page"])
    assert await list_names(tools) == ["a-docs__get-page", "github__create_issue", "github__list_issues"]
    assert tools.by_name["a-docs__get-page"].path == "a-docs.get-page"


def test_every_name_fits_the_interfaces_of_models() -> None:
    tools = export(docs=["a.b/c", "x" * 128, "run code!"], **{"s" * 63: ["y" * 100, "z"]})
    assert len(tools.by_name) == 5
    for name in tools.by_name:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
        assert "__" in name
    assert max(map(len, tools.by_name)) == MAX_NAME


def test_names_that_collide_all_get_a_digest_so_that_none_comes_to_mean_another_tool() -> None:
    alone = export(docs=["get.page"])
    both = export(docs=["get.page", "get/page"])
    assert list(alone.by_name) == ["docs__get_page"]
    assert "docs__get_page" not in both.by_name
    assert {tool.tool.name for tool in both.by_name.values()} == {"get.page", "get/page"}
    assert list(both.by_name) == list(export(docs=["get/page", "get.page"]).by_name)
    # of two servers, too
    assert len(export(a__b=["c"], a=["b__c"]).by_name) == 2


async def test_a_caller_sees_what_its_key_the_application_and_the_pool_allow() -> None:
    tools = export(github=["create_issue", "list_issues", "get_file"], docs=["get_page"])
    key, application = ("github.*",), ("*.get_*", "github.list_issues")
    rights = ToolRights(allow=(key, application), deny=("github.list_*",))
    assert await list_names(tools, rights) == ["github__get_file"]
    assert await list_names(tools, ToolRights(allow=((),))) == []


async def test_marked_tools_are_a_selection_of_their_own() -> None:
    tools = export({"docs": frozenset({"get_page"})}, docs=["get_page", "search"])
    assert await list_names(tools, only_direct=True) == ["docs__get_page"]
    assert await list_names(tools, ToolRights(allow=(("docs.search",),)), only_direct=True) == []


async def test_many_tools_and_patterns_are_compared_once() -> None:
    tools = export(docs=[f"tool_{number}" for number in range(500)])
    rights = ToolRights(allow=(tuple(f"docs.tool_{number}" for number in range(100)),))
    one, two = await select(tools, rights), await select(tools, rights)
    assert one is two
    assert len(one.tools) == 100


async def test_selections_of_one_caller_drop_none_of_another() -> None:
    tools = export(docs=["get_page"])
    kept = await select(tools, ALL, caller="other")
    for number in range(1000):
        await select(tools, ToolRights(allow=((f"docs.tool_{number}",),)))
    assert await select(tools, ALL, caller="other") is kept


async def test_a_selection_finds_its_tools_by_name() -> None:
    tools = export(docs=["get_page", "list"], a_b=["get"])
    selection = await select(tools, ToolRights(allow=(("docs.*",),)))
    assert [found and found.path for found in map(selection.find, tools.by_name)] == [
        None,
        "docs.get_page",
        "docs.list",
    ]
    assert selection.find("zzz") is None


def test_a_changed_tool_changes_the_digest_and_an_equal_one_does_not() -> None:
    def digest(**tool: Any) -> str:
        tools = ExportedTools.build([Catalog.from_tools("docs", [{"name": "get", **tool}])], direct={})
        return ToolSelection(tools=list(tools.by_name.values())).digest

    assert digest() == digest()
    assert (
        len({digest(), digest(title="T"), digest(description="D"), digest(inputSchema={"type": "object", "x": 1})}) == 4
    )
