"""Deletes executions that have ended, with their output and artifacts. Records and audit records stay.

example:
  mcp-exec delete exec-01k9x3v5t8q2
"""

import argparse

from mcp_exec_client.cli.connection import open_backend
from mcp_exec_client.cli.interrupts import run_interruptible
from mcp_exec_client.cli.options import Subcommands, add_command, add_connection_options, set_completer
from mcp_exec_client.cli.terminal import print_line


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "delete", summary="delete executions that have ended", description=__doc__)
    set_completer(command.add_argument("names", metavar="NAME", nargs="+", help="name of an execution"), "execution")
    add_connection_options(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError."""
    run_interruptible(_run(options))


async def _run(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        for name in options.names:
            is_gone = await backend.delete(name)
            print_line(f"{name} is deleted" if is_gone else f"{name} will be deleted by the operator")
