"""Rollouts: staged changes between arms, and what approvers do with them."""

import argparse
from collections.abc import Sequence
from typing import Final

from mcp_exec_client.cli.connection import open_backend, open_client
from mcp_exec_client.cli.options import (
    Object,
    Subcommands,
    add_client_options,
    add_command,
    add_connection_options,
    add_group,
    add_output_option,
)
from mcp_exec_client.cli.output import (
    FORMATS,
    TableColumn,
    age,
    fields,
    print_data,
    print_line,
    print_note,
    print_object,
    print_objects,
    print_table,
)

ROLLOUT_STAGES: Final = (
    TableColumn(title="STAGE", cell=lambda item: item["name"]),
    TableColumn(title="PRESENT", cell=lambda item: "yes" if item.get("present") else None),
    TableColumn(title="USERS", cell=lambda item: item.get("users") or None),
    TableColumn(title="PERCENT", cell=lambda item: item.get("percent") or 0),
    TableColumn(title="SECONDS", cell=lambda item: item.get("durationSeconds") or "until promoted"),
)
ROLLOUT_ARMS: Final = (
    TableColumn(title="ARM", cell=lambda item: item["name"]),
    *fields("mode", "pool"),
    TableColumn(title="UNITS", cell=lambda item: item["measured"].get("exposed")),
    TableColumn(title="OUTCOMES", cell=lambda item: item["measured"].get("outcomes")),
    TableColumn(title="ERROR RATE", cell=lambda item: item["measured"].get("errorRate")),
    TableColumn(title="P95 MS", cell=lambda item: item["measured"].get("p95LatencyMs")),
    TableColumn(title="COST", cell=lambda item: item["measured"].get("costPerConversation")),
    TableColumn(title="RATING", cell=lambda item: item["measured"].get("rating")),
)
ROLLOUT_GUARDS: Final = (
    TableColumn(title="GUARD", cell=lambda item: item["name"]),
    *fields("metric", "state", "arm", "value", "limit", "samples"),
)
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


def worst_guard(guards: Sequence[Object] | None) -> str | None:
    """Return the worst that the guards found, as `kubectl get xro` shows it; None without guards."""
    for state in ("Violated", "Unknown"):
        for guard in guards or ():
            if guard.get("state") == state:
                return f"{guard.get('metric')} {state}"
    return "OK" if guards else None


ROLLOUTS: Final = (
    *fields("name", "phase", "stage"),
    TableColumn(title="ARMS", cell=lambda item: ", ".join(arm["name"] for arm in item.get("arms") or ())),
    *fields("exposure"),
    TableColumn(title="GUARD", cell=lambda item: worst_guard(item.get("guards"))),
    *fields("control", wide=True),
    TableColumn(title="MESSAGE", cell=lambda item: item.get("problem") or item.get("message"), wide=True),
    TableColumn(title="SINCE", cell=lambda item: age(item.get("since"))),
)


def _interval(arm: Object, name: str, *, scale: float = 1.0) -> str | None:
    """Return a value with the ends of its interval, for people; an end that nothing is known of is `?`."""
    measured = arm.get(name)
    if measured is None:
        return None
    low, high = ("?" if measured.get(end) is None else f"{measured[end] * scale:.4g}" for end in ("low", "high"))
    return f"{measured['value'] * scale:.4g} ({low} to {high})"


ARM_REPORT: Final = (
    TableColumn(title="ARM", cell=lambda arm: arm["name"]),
    TableColumn(title="EXPOSED", cell=lambda arm: arm.get("exposed") or 0),
    TableColumn(title="UNITS", cell=lambda arm: arm.get("units") or 0),
    TableColumn(title="OUTCOMES", cell=lambda arm: arm.get("outcomes") or 0),
    TableColumn(title="FAILED %", cell=lambda arm: _interval(arm, "errorRate", scale=100)),
    TableColumn(title="P95 MS", cell=lambda arm: _interval(arm, "p95LatencyMs")),
    TableColumn(title="TOKENS", cell=lambda arm: _interval(arm, "tokens")),
    TableColumn(title="COST", cell=lambda arm: _interval(arm, "cost")),
    TableColumn(title="RATING", cell=lambda arm: _interval(arm, "rating")),
)


def add_to(commands: Subcommands) -> None:
    """Add the commands and their options."""
    group = add_group(commands, "rollout", summary="list, promote, pause and abort rollouts")
    listing = add_command(group, "list", summary="list rollouts", description=_LIST, run=_list)
    status = add_command(group, "status", summary="show a rollout", description=_STATUS, run=_show)
    report = add_command(group, "report", summary="compare the arms of a rollout", description=_REPORT, run=_report)
    report.add_argument("name", metavar="NAME", help="name of the rollout")
    add_output_option(report, "table", "json", "yaml")
    add_client_options(report)
    steering = []
    for action, description in _STEERING.items():
        command = add_command(group, action, summary=_SUMMARIES[action], description=description, run=_steer)
        command.set_defaults(action=action, to=None)
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
    from mcp_exec_client.cli.follower import describe_nothing

    async with open_backend(options) as backend:
        items = await backend.list_rollouts()
        empty = "" if items else await describe_nothing(backend, "rollouts")
    print_objects(items, form=options.output, columns=ROLLOUTS, empty=empty)


async def _show(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        rollout = await backend.get_rollout(options.name)
    print_object(rollout, form=options.output, columns=ROLLOUTS)
    if options.output in ("table", "wide"):
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
            print_table(columns, items)


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
    print_table(ARM_REPORT, arms)


async def _steer(options: argparse.Namespace) -> None:
    async with open_backend(options) as backend:
        await backend.steer_rollout(options.name, options.action, to=options.to)
    done = {"promote": "is promoted", "pause": "is paused", "resume": "continues", "abort": "is aborted"}
    print_line(f"{options.name} {done[options.action]}")
