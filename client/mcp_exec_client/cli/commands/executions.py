"""Executions: list, show, follow, cancel and delete them, and decide on their tool calls."""

import argparse
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from mcp_exec_api.constants import Phase
from mcp_exec_client.cli.backends.backend import Decision, Selection, is_unobserved
from mcp_exec_client.cli.connection import open_backend
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import (
    MAX_WAIT_SECONDS,
    Subcommands,
    add_command,
    add_connection_options,
    add_number,
    add_output_option,
    set_completer,
)
from mcp_exec_client.cli.output import APPROVALS, EXECUTIONS, FORMATS, print_line, print_object, print_objects
from mcp_exec_client.cli.printer import EventPrinter

if TYPE_CHECKING:
    from mcp_exec_client.cli.connection import Backend


_GET: Final = """Lists executions, newest first, or shows one.

examples:
  mcp-exec get
  mcp-exec get --phase Failed -o wide
  mcp-exec get exec-01k9x3v5t8q2 -o json --include-code
"""
_LOGS: Final = """Shows the output of an execution: standard output and standard error, each to the same stream.

With -f, it follows an unfinished execution to its end and exits with a code that says how it ended, as `run` does. An
interrupt (Ctrl-C) ends the command and not the execution. Through an API server there is no output before the end.

examples:
  mcp-exec logs exec-01k9x3v5t8q2
  mcp-exec logs -f exec-01k9x3v5t8q2
"""
_CANCEL: Final = """Cancels executions. Code that runs is ended; the output until then is kept.

example:
  mcp-exec cancel exec-01k9x3v5t8q2
"""
_DELETE: Final = """Deletes executions that have ended, with their output and artifacts. Records and audit records stay.

example:
  mcp-exec delete exec-01k9x3v5t8q2
"""
_PHASES: Final = tuple(map(str, Phase))
_QUIET_SECONDS: Final = 1.0
"""For logs without -f: time without an event that means that all output so far has come."""
_APPROVALS: Final = """Lists the tool calls of an execution that wait or waited for an approval, or all that wait.

examples:
  mcp-exec approvals
  mcp-exec approvals exec-01k9x3v5t8q2 -o json
"""
_DECIDE: Final = """{verb} a tool call that waits for an approval.{more}

The command shows the call that it decides on. `mcp-exec approvals` lists the calls that wait, with their ids.

example:
  mcp-exec {command} exec-01k9x3v5t8q2 approval-4f7c21d09e5b8a36
"""


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    get = add_command(commands, "get", summary="list executions, or show one", description=_GET, run=_get)
    set_completer(get.add_argument("name", metavar="NAME", nargs="?", help="one execution"), "execution")
    get.add_argument("--include-code", action="store_true", help="with NAME and -o json or yaml: its code, too")
    get.add_argument("--phase", metavar="PHASE", choices=_PHASES, help=f"one of {', '.join(_PHASES)}")
    get.add_argument("--caller", metavar="NAME", help="only executions of this caller")
    get.add_argument("-l", "--selector", metavar="LABELS", default="", help="label selector, such as team=a")
    add_number(get, "--limit", 1, 500, default=50, help="most executions")
    add_output_option(get, *FORMATS)
    logs = add_command(commands, "logs", summary="show the output of an execution", description=_LOGS, run=_show_logs)
    set_completer(logs.add_argument("name", metavar="NAME", help="name of the execution"), "execution")
    logs.add_argument("-f", "--follow", action="store_true", help="follow the execution to its end")
    add_number(
        logs,
        "--wait",
        1,
        MAX_WAIT_SECONDS,
        metavar="SECONDS",
        default=3600.0,
        help="with -f: longest time to wait for the end",
    )
    cancel = add_command(commands, "cancel", summary="cancel executions", description=_CANCEL, run=_cancel)
    delete = add_command(
        commands, "delete", summary="delete executions that have ended", description=_DELETE, run=_delete
    )
    for command in (cancel, delete):
        names = command.add_argument("names", metavar="NAME", nargs="+", help="name of an execution")
        set_completer(names, "execution")
    for command in (get, logs, cancel, delete):
        add_connection_options(command)
    _add_approvals(commands)


async def _get(options: argparse.Namespace) -> None:
    from mcp_exec_client.cli.follower import describe_nothing

    if options.include_code and not (options.name and options.output in ("json", "yaml")):
        raise CommandError("--include-code needs NAME and -o json or yaml", ExitCode.USAGE)
    if options.name and (options.phase or options.caller or options.selector):
        raise CommandError("--phase, --caller and --selector are not allowed with NAME", ExitCode.USAGE)
    async with open_backend(options) as backend:
        if options.name:
            execution = await backend.get(options.name, with_code=options.include_code)
            print_object(execution, form=options.output, columns=EXECUTIONS)
            return
        selection = Selection(phase=options.phase, caller=options.caller, labels=options.selector, limit=options.limit)
        items = await backend.list_executions(selection)
        empty = "" if items else await describe_nothing(backend, "executions")
    print_objects(items, form=options.output, columns=EXECUTIONS, empty=empty)


async def _show_logs(options: argparse.Namespace) -> None:
    from mcp_exec_client.cli.follower import Follower, check_end

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


async def _show_so_far(backend: "Backend", name: str, printer: EventPrinter) -> None:
    import asyncio

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


async def _cancel(options: argparse.Namespace) -> None:
    from mcp_exec_client.cli.follower import explain_silence

    async with open_backend(options) as backend:
        for name in options.names:
            execution = await backend.cancel(name)
            if is_unobserved(execution) and (problem := await explain_silence(backend)) is not None:
                print_line(f"{await backend.withdraw(name)}: {problem}")
                continue
            is_ended = execution["phase"] not in ("Pending", "Running")
            print_line(f"{name} has already ended: {execution['phase']}" if is_ended else f"{name} is being cancelled")


async def _delete(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        for name in options.names:
            is_gone = await backend.delete(name)
            print_line(f"{name} is deleted" if is_gone else f"{name} will be deleted by the operator")


def _add_approvals(commands: Subcommands) -> None:
    """Add the commands and their options."""
    command = add_command(
        commands,
        "approvals",
        summary="list tool calls that wait for an approval",
        description=_APPROVALS,
        run=_list_approvals,
    )
    set_completer(command.add_argument("name", metavar="NAME", nargs="?", help="one execution"), "execution")
    add_output_option(command, *FORMATS)
    add_connection_options(command)
    _add_decision(commands, "approve", "Approves", "")
    _add_decision(commands, "deny", "Denies", " The code receives the comment with the error.")


def _add_decision(commands: Subcommands, name: str, verb: str, more: str) -> None:
    description = _DECIDE.format(command=name, verb=verb, more=more)
    command = add_command(commands, name, summary=f"{name} a tool call", description=description, run=_decide)
    set_completer(command.add_argument("name", metavar="NAME", help="name of the execution"), "execution")
    command.add_argument("approval", metavar="ID", help="id of the approval")
    command.add_argument("--comment", metavar="TEXT", help="reason for the decision")
    add_connection_options(command)


async def _list_approvals(options: argparse.Namespace) -> None:
    from mcp_exec_client.cli.follower import describe_nothing

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
