"""Rollouts: staged changes between arms, and what approvers do with them."""

import argparse
from typing import Final

from mcp_exec_client.cli.connection import open_backend, open_client
from mcp_exec_client.cli.following.silence import describe_nothing
from mcp_exec_client.cli.interrupts import run_interruptible
from mcp_exec_client.cli.options import (
    Object,
    Subcommands,
    add_command,
    add_connection_options,
    add_gateway_options,
    add_group,
    add_output_option,
)
from mcp_exec_client.cli.output import FORMATS, print_data, print_objects, print_table
from mcp_exec_client.cli.rollouts.tables import ARM_REPORT, ROLLOUT_ARMS, ROLLOUT_GUARDS, ROLLOUT_STAGES, ROLLOUTS
from mcp_exec_client.cli.terminal import print_line, print_note

_LIST: Final = """Lists the rollouts of the namespace.

examples:
  mcp-exec rollout list
  mcp-exec rollout list -o wide
"""
_STATUS: Final = """Shows one rollout: its stages, its arms with what they measured, and what its guards found.

examples:
  mcp-exec rollout status code-mode
  mcp-exec rollout status code-mode -o json
"""
_REPORT: Final = """Shows what each arm measured since the rollout began, with 95 % confidence intervals.

example:
  mcp-exec rollout report code-mode
"""
_PROMOTE: Final = """Requests the next stage of a rollout, or a later one, or its end. Its pools are warmed first.

Only approvers may do this; with --kubeconfig, those who may patch the rollout.

examples:
  mcp-exec rollout promote code-mode
  mcp-exec rollout promote code-mode --to Completed
"""
_PAUSE: Final = """Keeps a rollout in its present stage. Assignments continue, and guards still roll back.

Only approvers may do this; with --kubeconfig, those who may patch the rollout.

example:
  mcp-exec rollout pause code-mode
"""
_RESUME: Final = """Lets a paused rollout continue.

Only approvers may do this; with --kubeconfig, those who may patch the rollout.

example:
  mcp-exec rollout resume code-mode
"""
_ABORT: Final = """Gives every unit the control arm, for good. An abort can't be taken back: create another rollout.

Only approvers may do this; with --kubeconfig, those who may patch the rollout.

example:
  mcp-exec rollout abort code-mode
"""
_STEERING: Final = {"promote": _PROMOTE, "pause": _PAUSE, "resume": _RESUME, "abort": _ABORT}
_SUMMARIES: Final = {
    "promote": "begin the next stage",
    "pause": "stay in the present stage",
    "resume": "continue",
    "abort": "give every unit the control arm, for good",
}


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "rollout", summary="list, promote, pause and abort rollouts")
    listing = add_command(group, "list", summary="list rollouts", description=_LIST)
    listing.set_defaults(run=lambda options: run_interruptible(_list(options)))
    status = add_command(group, "status", summary="show a rollout", description=_STATUS)
    status.set_defaults(run=lambda options: run_interruptible(_show(options)))
    report = add_command(group, "report", summary="compare the arms of a rollout", description=_REPORT)
    report.add_argument("name", metavar="NAME", help="name of the rollout")
    add_output_option(report, "table", "json", "yaml")
    add_gateway_options(report)
    report.add_argument("-n", "--namespace", metavar="NAME", help="namespace; default: the key's own")
    report.set_defaults(run=lambda options: run_interruptible(_report(options)))
    steering = []
    for action, description in _STEERING.items():
        command = add_command(group, action, summary=_SUMMARIES[action], description=description)
        command.set_defaults(action=action, to=None, run=lambda options: run_interruptible(_steer(options)))
        if action == "promote":
            command.add_argument("--to", metavar="STAGE", help="stage to begin, or Completed; default: the next one")
        steering.append(command)
    for command in (status, *steering):
        command.add_argument("name", metavar="NAME", help="name of the rollout")
    for command in (listing, status):
        add_output_option(command, *FORMATS)
    for command in (listing, status, *steering):
        add_connection_options(command)


async def _list(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        items = await backend.list_rollouts()
        empty = "" if items else await describe_nothing(backend, "rollouts")
    print_objects(items, form=options.output, columns=ROLLOUTS, name=lambda item: str(item["name"]), empty=empty)


async def _show(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        rollout = await backend.get_rollout(options.name)
    if options.output in ("json", "yaml"):
        print_data(rollout, form=options.output)
        return
    print_objects([rollout], form=options.output, columns=ROLLOUTS, name=lambda item: str(item["name"]))
    if options.output != "name":
        _print_details(rollout)


def _print_details(rollout: Object) -> None:
    if message := rollout.get("problem") or rollout.get("message"):
        print_line(str(message))
    measured = {each["name"]: each for each in rollout.get("measures") or ()}
    arms = [{**arm, "measured": measured.get(arm["name"]) or {}} for arm in rollout.get("arms") or ()]
    stages = [{**stage, "present": stage["name"] == rollout.get("stage")} for stage in rollout.get("stages") or ()]
    for items, columns in ((stages, ROLLOUT_STAGES), (arms, ROLLOUT_ARMS), (rollout.get("guards"), ROLLOUT_GUARDS)):
        if items:
            print_line("")
            print_table([each.title for each in columns], [[each.cell(item) for each in columns] for item in items])


async def _report(options: argparse.Namespace) -> None:
    async with open_client(options) as client:
        found = await client.conversations.rollout_report(options.name)
    report = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if options.output in ("json", "yaml"):
        print_data(report, form=options.output)
        return
    arms = report.get("arms") or ()
    if not arms:
        print_note(f"{options.name} has no outcomes yet")
        return
    print_table([each.title for each in ARM_REPORT], [[each.cell(arm) for each in ARM_REPORT] for arm in arms])


async def _steer(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        await backend.steer_rollout(options.name, options.action, to=options.to)
    done = {"promote": "is promoted", "pause": "is paused", "resume": "continues", "abort": "is aborted"}
    print_line(f"{options.name} {done[options.action]}")
