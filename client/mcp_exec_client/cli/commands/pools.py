"""Pools: what code can import in each, and how many pods there are."""

import argparse
import asyncio
from typing import Final

from mcp_exec_client.cli.connection import open_backend
from mcp_exec_client.cli.options import Subcommands, add_command, add_connection_options, add_output_option
from mcp_exec_client.cli.output import FORMATS, print_objects
from mcp_exec_client.cli.views import POOLS

_DESCRIPTION: Final = """Lists pools with their Python, libraries and pods: at a gateway those that the caller may use.

`mcp-exec run --pool NAME` runs code in a pool. A pool has no Python and no libraries until a pod has become ready.

examples:
  mcp-exec pools
  mcp-exec pools -o wide
  mcp-exec pools -o json
"""


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "pools", summary="list pools and their libraries", description=_DESCRIPTION)
    add_output_option(command, *FORMATS)
    add_connection_options(command)
    command.set_defaults(run=lambda options: asyncio.run(_list(options)))


async def _list(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        items = await backend.list_pools()
    print_objects(items, form=options.output, columns=POOLS, name=lambda item: str(item["name"]))
