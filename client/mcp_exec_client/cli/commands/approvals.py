"""Lists the tool calls of an execution that wait or waited for an approval, or all that wait.

examples:
  mcp-exec approvals
  mcp-exec approvals exec-01k9x3v5t8q2 -o json
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
    set_completer,
)
from mcp_exec_client.cli.output import FORMATS, print_objects
from mcp_exec_client.cli.terminal import print_line
from mcp_exec_client.cli.views import APPROVALS

_DECIDE: Final = """{verb} a tool call that waits for an approval.{more}

The command shows the call that it decides on. `mcp-exec approvals` lists the calls that wait, with their ids.

example:
  mcp-exec {command} exec-01k9x3v5t8q2 approval-4f7c21d09e5b8a36
"""


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    command = add_command(
        commands, "approvals", summary="list tool calls that wait for an approval", description=__doc__
    )
    set_completer(command.add_argument("name", metavar="NAME", nargs="?", help="one execution"), "execution")
    add_output_option(command, *FORMATS)
    add_connection_options(command)
    command.set_defaults(run=run)
    _add_decision(commands, "approve", "Approves", "")
    _add_decision(commands, "deny", "Denies", " The code receives the comment with the error.")


def _add_decision(commands: Subcommands, name: str, verb: str, more: str) -> None:
    description = _DECIDE.format(command=name, verb=verb, more=more)
    command = add_command(commands, name, summary=f"{name} a tool call", description=description)
    set_completer(command.add_argument("name", metavar="NAME", help="name of the execution"), "execution")
    command.add_argument("approval", metavar="ID", help="id of the approval")
    command.add_argument("--comment", metavar="TEXT", help="reason for the decision")
    add_connection_options(command)
    command.set_defaults(run=decide)


def run(options: argparse.Namespace) -> None:
    """Run `approvals`. Raises CommandError."""
    run_interruptible(_list(options))


def decide(options: argparse.Namespace) -> None:
    """Run `approve` and `deny`. Raises CommandError."""
    run_interruptible(_decide(options))


async def _list(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        items = await backend.list_approvals(options.name)
        what = f"approvals of {options.name}" if options.name else "tool calls that wait for an approval"
        empty = "" if items else await describe_nothing(backend, what)
    print_objects(
        items,
        form=options.output,
        columns=APPROVALS,
        name=lambda item: f"{item['execution']} {item['id']}",
        empty=empty,
    )


async def _decide(options: argparse.Namespace) -> None:
    from mcp_exec_client.cli.backends.backend import Decision

    async with open_backend(options) as backend:
        listed = await backend.list_approvals(options.name)
        found = next((item for item in listed if item["id"] == options.approval), None)
        if found is None:
            known = ", ".join(str(item["id"]) for item in listed if item["state"] == "Pending") or "none"
            message = f"{options.name} has no approval {options.approval}; pending are: {known}"
            raise CommandError(message, ExitCode.REFUSED)
        # the digest: the arguments that are shown are those that are approved
        choice = Decision(
            choice="Approve" if options.command == "approve" else "Deny",
            comment=options.comment,
            arguments_digest=found.get("argumentsDigest") or None,
        )
        decided = await backend.decide(options.name, options.approval, choice)
    print_line(f"{decided['state']}: {found['tool']} {found['arguments']} of {options.name}")
