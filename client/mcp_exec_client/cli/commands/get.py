"""Lists executions, newest first, or shows one.

examples:
  mcp-exec get
  mcp-exec get --phase Failed -o wide
  mcp-exec get exec-01k9x3v5t8q2 -o json --include-code
"""

import argparse
from typing import Final

from mcp_exec_client.cli.connection import open_backend
from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.following.silence import describe_nothing
from mcp_exec_client.cli.interrupts import run_interruptible
from mcp_exec_client.cli.options import (
    CommandError,
    Subcommands,
    add_command,
    add_connection_options,
    add_output_option,
    number_between,
    set_completer,
)
from mcp_exec_client.cli.output import FORMATS, print_data, print_objects
from mcp_exec_client.cli.views import EXECUTIONS

_PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "TimedOut", "Cancelled")


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "get", summary="list executions, or show one", description=__doc__)
    set_completer(command.add_argument("name", metavar="NAME", nargs="?", help="one execution"), "execution")
    command.add_argument("--include-code", action="store_true", help="with NAME and -o json or yaml: its code, too")
    command.add_argument("--phase", metavar="PHASE", choices=_PHASES, help=f"one of {', '.join(_PHASES)}")
    command.add_argument("--caller", metavar="NAME", help="only executions of this caller")
    command.add_argument("-l", "--selector", metavar="LABELS", default="", help="label selector, such as team=a")
    command.add_argument(
        "--limit", metavar="N", type=number_between(1, 500), default=50, help="most executions; default: 50"
    )
    add_output_option(command, *FORMATS)
    add_connection_options(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError."""
    if options.include_code and not (options.name and options.output in ("json", "yaml")):
        raise CommandError("--include-code needs NAME and -o json or yaml", ExitCode.USAGE)
    if options.name and (options.phase or options.caller or options.selector):
        raise CommandError("--phase, --caller and --selector are not allowed with NAME", ExitCode.USAGE)
    run_interruptible(_run(options))


async def _run(options: argparse.Namespace) -> None:
    from mcp_exec_client.cli.backends.backend import Selection

    async with open_backend(options) as backend:
        if not options.name:
            selection = Selection(
                phase=options.phase, caller=options.caller, labels=options.selector, limit=options.limit
            )
            items = await backend.list_executions(selection)
            empty = "" if items else await describe_nothing(backend, "executions")
        else:
            empty = ""
            items = [await backend.get(options.name, with_code=options.include_code)]
    if options.name and options.output in ("json", "yaml"):
        print_data(items[0], form=options.output)
    else:
        print_objects(items, form=options.output, columns=EXECUTIONS, name=lambda item: str(item["name"]), empty=empty)
