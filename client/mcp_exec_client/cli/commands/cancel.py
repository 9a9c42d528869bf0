"""Cancels executions. Code that runs is ended; the output until then is kept.

example:
  mcp-exec cancel exec-01k9x3v5t8q2
"""

import argparse

from mcp_exec_client.cli.connection import open_backend
from mcp_exec_client.cli.interrupts import run_interruptible
from mcp_exec_client.cli.options import Subcommands, add_command, add_connection_options, set_completer
from mcp_exec_client.cli.terminal import print_line


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "cancel", summary="cancel executions", description=__doc__)
    set_completer(command.add_argument("names", metavar="NAME", nargs="+", help="name of an execution"), "execution")
    add_connection_options(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError."""
    run_interruptible(_run(options))


async def _run(options: argparse.Namespace) -> None:
    from mcp_exec_client.cli.backends.backend import is_unobserved
    from mcp_exec_client.cli.following.silence import explain_silence

    async with open_backend(options) as backend:
        for name in options.names:
            execution = await backend.cancel(name)
            if is_unobserved(execution) and (problem := await explain_silence(backend)) is not None:
                print_line(f"{await backend.withdraw(name)}: {problem}")
                continue
            is_ended = execution["phase"] not in ("Pending", "Running")
            print_line(f"{name} has already ended: {execution['phase']}" if is_ended else f"{name} is being cancelled")
