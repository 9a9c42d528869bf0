"""Options of a new execution: the one table behind the client's types, `mcp-exec run` and the arguments of `/mcp`.

It needs no library, because the command line reads it before a command runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, Required, TypedDict, get_args, get_origin, get_type_hints

from mcp_exec_api.constants import (
    MAX_APPROVAL_SECONDS,
    MAX_OUTPUT_BYTES,
    MAX_TIMEOUT_SECONDS,
    MAX_TOOL_CALLS,
    Language,
)

OptionKind = Literal["text", "number", "choice", "texts", "pairs", "object"]
"""Kind of an option's values: `pairs` has texts by their names, `object` any JSON by its name."""


@dataclass(frozen=True, kw_only=True)
class ExecutionOption:
    """One row of the table. Name and kind are those of the field that the row annotates."""

    help: str
    """What it sets, for people: a phrase."""
    default: str = ""
    """What holds without it, in words; empty for nothing."""
    field: str = ""
    """Path in the request's body, such as `limits.outputBytes`; by default the name."""
    lowest: int = 0
    highest: int = 0
    """Bounds of a number."""
    longest: int | None = None
    """Maximum characters of a text."""
    flag: str = ""
    """Option of `mcp-exec run`; by default the name."""
    metavar: str = ""
    """What stands for the value in help texts; by default SECONDS or N for a number."""
    argument: str = ""
    """Argument of `run_code` at `/mcp`; empty if a model cannot set it."""
    argument_help: str = ""
    """What a model reads about it: short, because every request has it."""
    name: str = ""
    kind: OptionKind = "text"
    choices: tuple[str, ...] = ()
    """Allowed values of a choice."""


class WorkspaceOption(TypedDict, total=False):
    """Workspace of an execution, with a mode."""

    name: Required[str]
    mode: Literal["Write", "Read"]
    """Write: what the code changes is saved. Read: the code has a snapshot. Write by default."""


class ExecutionOptions(TypedDict, total=False):
    """Options of every function that runs code. An option that is not given, or None, has the gateway's default."""

    tools: Annotated[
        Sequence[str] | None,
        ExecutionOption(
            help="pattern of tools that the code may call, such as `github.*`",
            flag="--tool",
            metavar="PATTERN",
            argument="tools",
            argument_help="tools that the code may call, such as github.get_* (default: all)",
        ),
    ]
    description: Annotated[
        str | None,
        ExecutionOption(
            help="what the code does, at most 200 characters",
            longest=200,
            argument="description",
            argument_help="what the code is for, in a line",
        ),
    ]
    session: Annotated[
        str | None,
        ExecutionOption(
            help="session whose variables, imports and files the code has; it is created",
            metavar="NAME",
            argument="session",
            argument_help="a name: variables, imports and files are there in the next call with it",
        ),
    ]
    workspace: Annotated[
        str | WorkspaceOption | None,
        ExecutionOption(
            help="workspace whose files the code has, and saves unless `:ro` follows; it is created",
            metavar="NAME[:ro]",
            argument="workspace",
            argument_help="a name: files in the working folder are saved under it for later calls",
        ),
    ]
    skill_ref: Annotated[
        Mapping[str, Any] | None,
        ExecutionOption(
            help="skill to run instead of code, with the context as its arguments",
            default="the newest approved version",
            field="skillRef",
            metavar="NAME[-vVERSION]",
        ),
    ]
    skills: Annotated[
        Sequence[str] | None,
        ExecutionOption(help="skill that the code imports by a computed name", flag="--skill", metavar="NAME"),
    ]
    pool: Annotated[
        str | None,
        ExecutionOption(help="pool whose pod runs the code", default="default", field="poolRef.name", metavar="NAME"),
    ]
    language: Annotated[
        Language | None,
        ExecutionOption(
            help="language of the code; without --pool, a pool that runs it",
            default="that of the pool",
            metavar="LANGUAGE",
            argument="language",
            argument_help="language of the code",
        ),
    ]
    approval_timeout_seconds: Annotated[
        int | None,
        ExecutionOption(
            help="time that calls may wait for approvals, all together; with 0, calls that need one are denied",
            default="600",
            field="approvalTimeoutSeconds",
            highest=MAX_APPROVAL_SECONDS,
            flag="--approval-timeout",
        ),
    ]
    output_bytes: Annotated[
        int | None,
        ExecutionOption(
            help="most bytes kept of stdout, of stderr and of the result, each",
            default="65536",
            field="limits.outputBytes",
            lowest=1024,
            highest=MAX_OUTPUT_BYTES,
        ),
    ]
    tool_calls: Annotated[
        int | None,
        ExecutionOption(help="most tool calls", default="100", field="limits.toolCalls", highest=MAX_TOOL_CALLS),
    ]
    name: Annotated[
        str | None, ExecutionOption(help="name of the execution", default="one that is made up", metavar="NAME")
    ]
    labels: Annotated[Mapping[str, str] | None, ExecutionOption(help="label", flag="--label", metavar="KEY=VALUE")]
    conversation: Annotated[
        str | None, ExecutionOption(help="conversation that the execution belongs to", metavar="ID")
    ]
    use_case: Annotated[
        Literal["filtering", "workflow", "polling", "other"] | None,
        ExecutionOption(help="what the code is for", field="useCase", metavar="CASE"),
    ]
    user: Annotated[str | None, ExecutionOption(help="user on whose behalf the code runs", metavar="USER")]
    priority: Annotated[
        Literal["High", "Normal", "Low"] | None,
        ExecutionOption(help="place in the queue for a pod", default="Normal", metavar="CLASS"),
    ]
    ttl_seconds: Annotated[
        int | None,
        ExecutionOption(
            help="seconds from its end to its deletion",
            default="3600",
            field="ttlSecondsAfterFinished",
            highest=30 * 24 * 3600,
            flag="--ttl",
        ),
    ]


class RunOptions(ExecutionOptions, total=False):
    """Options of `run` and `submit`."""

    context: Annotated[
        Mapping[str, Any] | None,
        ExecutionOption(
            help="variable of the code: KEY=TEXT, or KEY:=JSON",
            metavar="KEY=VALUE",
            argument="context",
            argument_help="values that the code has as variables",
        ),
    ]
    timeout_seconds: Annotated[
        int | None,
        ExecutionOption(
            help="time limit of the code",
            default="30",
            field="timeoutSeconds",
            lowest=1,
            highest=MAX_TIMEOUT_SECONDS,
            flag="--timeout",
            argument="timeout",
            argument_help="seconds (default: 30)",
        ),
    ]


def read_options(declared: type) -> dict[str, ExecutionOption]:
    """Return the rows of a TypedDict by their names. Raises TypeError for a field of no known kind."""
    return {name: _read_row(name, kind) for name, kind in get_type_hints(declared, include_extras=True).items()}


def _read_row(name: str, annotated: Any) -> ExecutionOption:
    row: ExecutionOption
    declared, row = get_args(annotated)
    kind, choices = _find_kind(name, declared)
    unit = ("SECONDS" if name.endswith("_seconds") else "N") if kind == "number" else "TEXT"
    return replace(
        row,
        name=name,
        kind=kind,
        choices=choices,
        field=row.field or name,
        flag=row.flag or "--" + name.replace("_", "-"),
        metavar=row.metavar or unit,
    )


def _find_kind(name: str, declared: Any) -> tuple[OptionKind, tuple[str, ...]]:
    for part in get_args(declared):
        if get_origin(part) is Literal:
            return "choice", get_args(part)
        if part in _KINDS:
            return _KINDS[part], ()
    raise TypeError(f"{name}: options have no values of type {declared}")


_KINDS: Final[Mapping[Any, OptionKind]] = {
    str: "text",
    int: "number",
    Sequence[str]: "texts",
    Mapping[str, str]: "pairs",
    Mapping[str, Any]: "object",
}
EXECUTION_OPTIONS: Final[dict[str, ExecutionOption]] = dict(
    sorted(read_options(RunOptions).items(), key=lambda item: item[0] in ExecutionOptions.__annotations__)
)
"""All options by their names: input and time of the run, then those that all functions have in common."""


def set_field(body: dict[str, Any], path: str, value: Any) -> None:
    """Set a field of a request's body by its path."""
    *parents, field = path.split(".")
    for parent in parents:
        body = body.setdefault(parent, {})
    body[field] = value
