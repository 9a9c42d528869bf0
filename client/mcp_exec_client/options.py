"""Options of an execution, the request's body that they become, and errors that suggest options that exist."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, wraps
from typing import Any, Final, Literal, Required, TypedDict, TypeVar, get_args, is_typeddict

from mcp_exec_tools.names import camel_case

_Class = TypeVar("_Class", bound=type)

_CUTOFF: Final = 0.6
_MAX_NAME: Final = 60
_MIN_PART: Final = 3


def describe_unknown(name: str, known: Collection[str]) -> str:
    """Return a message about an option that does not exist, with one that may be meant and all there are."""
    folded = {_fold(each): each for each in sorted(known)}
    wanted = _fold(name[:_MAX_NAME])
    found = [folded[each] for each in get_close_matches(wanted, folded, n=1, cutoff=_CUTOFF)]
    found += [each for fold, each in folded.items() if len(wanted) >= _MIN_PART and (wanted in fold or fold in wanted)]
    question = f"did you mean {found[0]}? The options are" if found else "the options are"
    return f"unknown option {name[:_MAX_NAME]!r}; {question} {', '.join(sorted(known)) or 'none'}"


def suggesting(kind: _Class) -> _Class:
    """Let all public methods of a class answer an unknown option by a TypeError that suggests another one."""
    for name, method in vars(kind).copy().items():
        if inspect.isfunction(method) and (not name.startswith("_") or name == "__init__"):
            setattr(kind, name, _wrap(method))
    return kind


def _wrap(method: Callable[..., Any]) -> Callable[..., Any]:
    @cache
    def find_known() -> frozenset[str] | None:
        return _find_options(method)

    def check(options: dict[str, Any]) -> None:
        known = find_known() if options else None
        if known is not None and (unknown := options.keys() - known):
            raise TypeError(f"{method.__qualname__}(): {describe_unknown(min(unknown), known)}")

    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        check(options)
        return method(*arguments, **options)

    @wraps(method)
    async def call_async(*arguments: Any, **options: Any) -> Any:
        check(options)
        return await method(*arguments, **options)

    return call_async if inspect.iscoroutinefunction(method) else call


def _find_options(method: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names of all arguments that may be given by name, or None if any may."""
    known: set[str] = set()
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            known.add(parameter.name)
            continue
        (declared,) = get_args(parameter.annotation) or (None,)
        if not is_typeddict(declared):
            return None
        known |= declared.__annotations__.keys()
    return frozenset(known)


def _fold(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


DEFAULT_WAIT_SECONDS: Final = 900.0
"""Wait for an execution's end, in the queue, for approvals and while it runs."""
_BEFORE_RUN_SECONDS: Final = 600.0
"""The part of it in the queue and for approvals, which a longer run leaves as it is."""


class WorkspaceOption(TypedDict, total=False):
    """Workspace of an execution, with a mode."""

    name: Required[str]
    mode: Literal["Write", "Read"]
    """Write: what the code changes is saved. Read: the code has a snapshot. Write by default."""


class ExecutionOptions(TypedDict, total=False):
    """Options of every function that runs code. An option that is not given has the gateway's default."""

    tools: Sequence[str]
    """Patterns of the tools that the code may call, such as `github.*`; none by default."""
    pool: str
    """Pool whose pod runs the code."""
    output_bytes: int
    """Maximum bytes kept of stdout, of stderr and of the result, each."""
    tool_calls: int
    """Maximum number of tool calls."""
    priority: Literal["High", "Normal", "Low"]
    approval_timeout_seconds: int
    """Time for a decision on a tool call that needs an approval."""
    user: str
    """User on whose behalf the code runs."""
    ttl_seconds: int
    """Seconds from its end to its deletion."""
    name: str
    """Name of the execution, a DNS label that no other one has."""
    description: str
    """What the code does, for people; at most 200 characters."""
    labels: Mapping[str, str]
    """Labels of the execution, without a prefix."""
    conversation: str
    """Conversation that the execution belongs to."""
    use_case: Literal["filtering", "workflow", "polling", "other"]
    """What the code is for."""
    skill_ref: Mapping[str, Any]
    """Skill to run instead of code: its name, and its version if it is not the newest approved one."""
    skills: Sequence[str]
    """Skills that the code imports by computed names."""
    session: str
    """Session whose variables, imports and files the code has; it is created if it does not exist."""
    workspace: str | WorkspaceOption
    """Workspace whose files the code has at `/workspace`: its name, or name and mode."""


class RunOptions(ExecutionOptions, total=False):
    """Options of `run` and `submit`."""

    context: Mapping[str, Any]
    """Input data as JSON. The code has each key as a variable."""
    timeout_seconds: int
    """Time that the code may run."""


def default_wait(options: RunOptions) -> float:
    """Return the seconds that a client waits for the end of a run if its caller gives no other time."""
    return max(DEFAULT_WAIT_SECONDS, options.get("timeout_seconds", 0) + _BEFORE_RUN_SECONDS)


_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: (camel_case(name),) for name in RunOptions.__annotations__},
    "pool": ("poolRef", "name"),
    "output_bytes": ("limits", "outputBytes"),
    "tool_calls": ("limits", "toolCalls"),
    "ttl_seconds": ("ttlSecondsAfterFinished",),
}
"""Path in the request's body, by option."""


def build_body(code: str, options: RunOptions) -> dict[str, Any]:
    """Build the body of a request that creates an execution. Raises TypeError for an unknown option."""
    body: dict[str, Any] = {"code": code} if code or "skill_ref" not in options else {}
    for name, value in options.items():
        if name not in _FIELDS:
            raise TypeError(describe_unknown(name, _FIELDS))
        *parents, field = _FIELDS[name]
        target = body
        for parent in parents:
            target = target.setdefault(parent, {})
        target[field] = list(value) if name == "tools" else value  # type: ignore[call-overload]
    return body
