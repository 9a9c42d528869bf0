"""Shows the output of an execution: standard output and standard error, each to the same stream.

With -f, it follows an unfinished execution to its end and exits with the exit code of the run, as `run` does. An
interrupt (Ctrl-C) ends the command and not the execution. Through an API server there is no output before the end.

examples:
  mcp-exec logs exec-01k9x3v5t8q2
  mcp-exec logs -f exec-01k9x3v5t8q2
"""

import argparse
import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.connection import open_backend
from mcp_exec_client.cli.interrupts import run_interruptible
from mcp_exec_client.cli.options import (
    MAX_WAIT_SECONDS,
    Subcommands,
    add_command,
    add_connection_options,
    seconds_between,
    set_completer,
)

if TYPE_CHECKING:
    from mcp_exec_client.cli.backends.backend import Backend
    from mcp_exec_client.cli.printer import EventPrinter

_QUIET_SECONDS: Final = 1.0
"""Without -f: time without an event after which all output so far has come."""


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "logs", summary="show the output of an execution", description=__doc__)
    set_completer(command.add_argument("name", metavar="NAME", help="name of the execution"), "execution")
    command.add_argument("-f", "--follow", action="store_true", help="follow the execution to its end")
    command.add_argument(
        "--wait",
        metavar="SECONDS",
        type=seconds_between(1, MAX_WAIT_SECONDS),
        default=3600.0,
        help="with -f: longest time to wait for the end; default: 3600",
    )
    add_connection_options(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError."""
    run_interruptible(_run(options))


async def _run(options: argparse.Namespace) -> None:
    from mcp_exec_client.cli.following.follower import Follower, check_end
    from mcp_exec_client.cli.printer import EventPrinter

    printer = EventPrinter(options.name, program=options.program, with_result=False)
    async with open_backend(options) as backend:
        execution = await backend.get(options.name)  # so that a name that does not exist is refused at once
        if options.follow:
            follower = Follower(backend=backend, name=options.name, printer=printer)
            check_end(options.name, await follower.run(seconds=options.wait))
        elif execution["phase"] in ("Pending", "Running") and not backend.streams_output:
            printer.note(f"{options.name} is {execution['phase']}: the API server has its output after its end")
        else:
            await _show_so_far(backend, options.name, printer)


async def _show_so_far(backend: "Backend", name: str, printer: "EventPrinter") -> None:
    async with aclosing(backend.follow(name)) as events:
        while True:
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    event = await anext(events, None)
            except TimeoutError:
                return
            if event is None or event["type"] == "end":
                return
            if event["type"] in ("stdout", "stderr"):
                printer.show(event)
