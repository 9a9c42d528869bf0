"""Pools with their libraries, and the tools that code may call."""

import argparse
import sys
from typing import Final

from mcp_exec_client.cli.connection import open_backend
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import (
    Object,
    Subcommands,
    add_command,
    add_connection_options,
    add_group,
    add_number,
    add_output_option,
)
from mcp_exec_client.cli.output import FORMATS, POOLS, TOOLS, escape, print_data, print_line, print_objects, tool_name

_SEARCH: Final = """Searches the tools that the caller may use, best match first. Without a query it lists them.

example:
  mcp-exec tools search "open a pull request"
"""
_SHOW: Final = """Shows one tool: its description, how code imports it, and its schemas.

example:
  mcp-exec tools show github.create_issue
"""
_POOLS: Final = """Lists pools with their language, libraries and pods: at a gateway those that the caller may use.

`mcp-exec run --pool NAME` runs code in a pool. A pool has no Python and no libraries until a pod has become ready.

examples:
  mcp-exec pools
  mcp-exec pools -o wide
  mcp-exec pools -o json
"""
_CANDIDATES: Final = 50
"""Best matches of a name among which the tool is."""
_MAX_TOOLS: Final = 1000


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "tools", summary="search and show tools")
    search = add_command(group, "search", summary="search tools", description=_SEARCH, run=_search)
    search.add_argument("query", metavar="QUERY", nargs="*", help="what the tool should do")
    add_number(search, "--limit", 1, _MAX_TOOLS, default=20, help="most tools")
    add_output_option(search, *FORMATS)
    add_connection_options(search)
    show = add_command(group, "show", summary="show a tool", description=_SHOW, run=_show)
    show.add_argument("tool", metavar="SERVER.TOOL", help="name of the tool")
    add_output_option(show, "text", "json", "yaml", "name")
    add_connection_options(show)
    pools = add_command(
        commands, "pools", summary="list pools and their libraries", description=_POOLS, run=_list_pools
    )
    add_output_option(pools, *FORMATS)
    add_connection_options(pools)


async def _list_pools(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        items = await backend.list_pools()
    print_objects(items, form=options.output, columns=POOLS)


async def _search(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        items = await backend.search_tools(" ".join(options.query), limit=options.limit)
    query = " ".join(options.query)
    empty = f"no tool matches {query!r}; without a query, all tools are listed" if query else "this key may use no tool"
    print_objects(items, form=options.output, columns=TOOLS, name=tool_name, empty=empty)


async def _show(options: argparse.Namespace) -> None:
    server, _, name = options.tool.partition(".")
    if not server or not name:
        raise CommandError(f"{options.tool!r} must be SERVER.TOOL, such as github.create_issue", ExitCode.USAGE)
    async with open_backend(options) as backend:
        tools = await backend.search_tools(f"{server} {name}", limit=_CANDIDATES, schemas=True)
        found = _find(tools, server, name)
        if found is None:
            listed = await backend.search_tools("", limit=_MAX_TOOLS)
            names = ", ".join(sorted(str(tool["name"]) for tool in listed if tool["server"] == server)[:20])
            raise CommandError(f"{server} has no tool {name}; it has: {names or 'none'}", ExitCode.REFUSED)
    if options.output in ("json", "yaml"):
        print_data(found, form=options.output)
    elif options.output == "name":
        print_line(tool_name(found))
    else:
        _print_tool(found)


def _find(tools: list[Object], server: str, name: str) -> Object | None:
    """Return the tool of this name, or else the one whose name differs only in its spelling, such as createIssue."""
    from mcp_exec_tools.names import fold

    own = [tool for tool in tools if tool["server"] == server]
    exact = (tool for tool in own if tool["name"] == name)
    return next(exact, None) or next((tool for tool in own if fold(str(tool["name"])) == fold(name)), None)


def _print_tool(tool: Object) -> None:
    print_line(tool_name(tool))
    sys.stdout.write(escape(str(tool.get("description") or "").strip()) + "\n")
    print_line(str(tool["import"]))
    for title, schema in (("arguments", tool.get("input_schema")), ("result", tool.get("output_schema"))):
        if schema:
            print_line(f"{title}:")
            print_data(schema, form="json")
