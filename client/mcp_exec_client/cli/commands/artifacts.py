"""Artifacts: files, figures and tables that executions produced."""

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.connection import open_client
from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.interrupts import run_interruptible
from mcp_exec_client.cli.options import (
    CommandError,
    Subcommands,
    add_command,
    add_gateway_options,
    add_group,
    add_output_option,
    set_completer,
)
from mcp_exec_client.cli.output import FORMATS, print_objects
from mcp_exec_client.cli.terminal import print_line
from mcp_exec_client.cli.views import ARTIFACTS

if TYPE_CHECKING:
    from mcp_exec_client.client import AsyncClient

_LIST: Final = """Lists the artifacts of an execution, with links that work in a browser for 15 minutes.

examples:
  mcp-exec artifacts list exec-01k9x3v5t8q2
  mcp-exec artifacts list exec-01k9x3v5t8q2 -o wide
"""
_GET: Final = """Writes artifacts of an execution to a folder: those with these ids or names, or all.

examples:
  mcp-exec artifacts get exec-01k9x3v5t8q2
  mcp-exec artifacts get exec-01k9x3v5t8q2 sales.png --to ./figures
"""


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "artifacts", summary="list and get what executions produced")
    listing = add_command(group, "list", summary="list artifacts of an execution", description=_LIST)
    add_output_option(listing, *FORMATS)
    get = add_command(group, "get", summary="write artifacts to a folder", description=_GET)
    for command in (listing, get):
        set_completer(command.add_argument("name", metavar="NAME", help="name of the execution"), "execution")
        add_gateway_options(command)
        command.add_argument("-n", "--namespace", metavar="NAME", help="namespace; default: the key's own")
    get.add_argument("artifacts", metavar="ARTIFACT", nargs="*", help="id or name; default: all")
    target = get.add_argument("--to", metavar="FOLDER", type=Path, default=Path(), help="folder; default: this one")
    set_completer(target, "file")
    listing.set_defaults(run=lambda options: run_interruptible(_list(options)))
    get.set_defaults(run=lambda options: run_interruptible(_get(options)))


async def _list(options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        found = await client.artifacts.list(options.name)
    items = [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in found]
    empty = f"{options.name} has no artifacts"
    print_objects(items, form=options.output, columns=ARTIFACTS, name=lambda item: str(item["id"]), empty=empty)


async def _get(options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        try:
            await asyncio.to_thread(options.to.mkdir, parents=True, exist_ok=True)
            await _save(client, options)
        except OSError as error:
            raise CommandError(f"{error.filename or ''}: {error.strerror or error}", ExitCode.USAGE) from error


async def _save(client: "AsyncClient", options: argparse.Namespace) -> None:
    if options.artifacts:
        found = [await client.artifacts.get(options.name, artifact) for artifact in options.artifacts]
    else:
        found = list(await client.artifacts.list(options.name))
    for artifact in found:
        print_line(str(await artifact.save(options.to)))
