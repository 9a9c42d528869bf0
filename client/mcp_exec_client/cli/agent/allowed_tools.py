"""Tools that `--tool` allows: a model without any looks broken."""

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.options import CommandError
from mcp_exec_client.cli.terminal import print_note
from mcp_exec_tools.names import matches_any

if TYPE_CHECKING:
    from mcp_exec_client.client import AsyncClient

_MAX_TOOLS: Final = 1000
_MAX_SERVERS: Final = 10


async def check_allowed_tools(client: "AsyncClient", options: argparse.Namespace) -> None:
    """Say how to allow tools if there are none. Raises CommandError for a scripted model, which needs one."""
    from mcp_exec_client.errors import McpExecError

    try:
        found = await client.search_tools("", detail_level="name_only", limit=_MAX_TOOLS)
    except McpExecError:
        return  # the task itself reports it, if it needs tools
    if any(matches_any(options.tool, server=tool.server, tool=tool.name) for tool in found):
        return
    text = describe_no_tools(options.tool, {tool.server for tool in found}, task=getattr(options, "task", ""))
    if options.offline:
        raise CommandError(text, ExitCode.REFUSED if options.tool else ExitCode.USAGE)
    print_note(text)


def describe_no_tools(patterns: Collection[str], servers: Collection[str], *, task: str = "") -> str:
    """Return why a model has no tool, and which option allows some."""
    problem = f"no tool matches --tool {' '.join(patterns)}" if patterns else "no tool is allowed without --tool"
    if not servers:
        return f"{problem}: this key may use no tool"
    named = sorted(servers, key=lambda server: (server.lower() not in task.lower(), server))
    more = f" and {len(named) - _MAX_SERVERS} more" if len(named) > _MAX_SERVERS else ""
    return f"{problem}; --tool '{named[0]}.*' allows tools; servers: {', '.join(named[:_MAX_SERVERS])}{more}"
