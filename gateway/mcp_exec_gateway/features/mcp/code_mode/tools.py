"""The toolset of `mode=code`: which function serves which tool, and the tools that run code and save skills."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListToolsResult,
    TextContent,
)
from pydantic import ValidationError

from mcp_exec_api.constants import DEFAULT_LANGUAGE, IDEMPOTENCY_META
from mcp_exec_api.meta import explain_errors, format_path
from mcp_exec_api.wire.execution_options import EXECUTION_OPTIONS, set_field
from mcp_exec_api.wire.executions import NewExecution
from mcp_exec_api.wire.skills import NewSkill
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.executions.parameters import is_idempotency_key
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field
from mcp_exec_gateway.core.http.request_body import SURROGATE, parse_spec
from mcp_exec_gateway.features.mcp.code_mode import definitions
from mcp_exec_gateway.features.mcp.code_mode.arguments import read_arguments
from mcp_exec_gateway.features.mcp.code_mode.decisions import (
    Decisions,
    find_own_run,
    read_decisions,
    record_decisions,
)
from mcp_exec_gateway.features.mcp.code_mode.definitions import INSTRUCTIONS, TOOLS, list_definitions
from mcp_exec_gateway.features.mcp.code_mode.discovery import (
    InvalidArguments,
    check_names,
    check_skill,
    describe_tools,
    search_tools,
)
from mcp_exec_gateway.features.mcp.code_mode.files import read_file, write_file
from mcp_exec_gateway.features.mcp.code_mode.output import build_error, choose_output_bytes
from mcp_exec_gateway.features.mcp.code_mode.run import Run, RunOutcome
from mcp_exec_gateway.features.mcp.request import McpOptions, McpRequest, Sender
from mcp_exec_gateway.features.mcp.transport.tokens import ResumePoint
from mcp_exec_gateway.features.skills.cache import build_view
from mcp_exec_gateway.features.skills.service import SkillService
from mcp_exec_tools.patterns import ToolPatterns
from mcp_exec_tools.stored_json import find_surrogate

REFERENCE: Final = "skill"
"""Argument of `run_code` that carries the skill of `run_skill`. A client cannot send an object of this class."""
_SHOWN: Final = ("name", "version", "state", "import", "parameters", "codeFindings")
_TOOLS: Final = {tool.name: tool for tool in TOOLS}


class CodeTools:
    """Toolset of `mode=code`."""

    instructions = INSTRUCTIONS

    async def list_tools(self, request: McpRequest, cursor: str | None) -> ListToolsResult:
        """Return all tools: one page."""
        if cursor is not None:
            raise MCPError(INVALID_PARAMS, "there is one page of tools only; send no cursor")
        return ListToolsResult(tools=list_definitions(request.sender))

    async def call_tool(self, request: McpRequest, params: CallToolRequestParams) -> RunOutcome:
        """Call a tool. Arguments that the model can correct are an error in the result."""
        try:
            if (place := find_surrogate(params.arguments or {})) is not None:
                raise InvalidArguments(f"{format_path(place)}: {SURROGATE}")
            if params.name in RUNNING_TOOLS:
                if params.request_state is None:
                    params.arguments = RUNNING_TOOLS[params.name](params.arguments or {})
                return await run_code(request, params)
            if params.name in _OF_SENDER:
                arguments = read_arguments(_TOOLS[params.name], params.arguments or {})
                return await _OF_SENDER[params.name](request.sender, arguments)
        except InvalidArguments as error:
            return build_error(str(error))
        names = ", ".join(tool.name for tool in TOOLS)
        raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:100]!r}; there are: {names}")

    async def list_prompts(self, request: McpRequest) -> ListPromptsResult:
        """Return the prompts."""
        return ListPromptsResult(prompts=[definitions.CODE_MODE])

    async def get_prompt(self, request: McpRequest, params: GetPromptRequestParams) -> GetPromptResult:
        """Return one prompt."""
        return await definitions.get_prompt(request.sender, params)


@dataclass(frozen=True, kw_only=True)
class SkillReference:
    """The skill to run."""

    name: Any
    version: Any

    def to_api(self) -> dict[str, Any]:
        """Return the field `skillRef` of a spec."""
        return {"name": self.name, **({} if self.version is None else {"version": self.version})}


def _read_code(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return read_arguments(definitions.RUN_CODE, arguments)


def _read_reference(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `run_code` that run a skill. Raises InvalidArguments."""
    arguments = read_arguments(definitions.RUN_SKILL, arguments)
    check_names(arguments, "name", "version", "arguments", "timeout")
    if not isinstance(name := arguments.get("name"), str):
        raise InvalidArguments("name is missing: send the name of a skill; search_tools finds skills")
    given = arguments.get("arguments") or {}
    if not isinstance(given, Mapping):
        raise InvalidArguments("arguments must be an object: the arguments of the skill by their names")
    reference = SkillReference(name=name.replace("_", "-"), version=arguments.get("version"))
    return {REFERENCE: reference, "context": dict(given), "timeout": arguments.get("timeout")}


RUNNING_TOOLS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "run_code": _read_code,
    "run_skill": _read_reference,
}
"""Tools that run code, each with what reads its arguments as those of `run_code`. It may raise InvalidArguments."""


async def save_skill(sender: Sender, arguments: Mapping[str, Any]) -> CallToolResult:
    """Save a draft of the caller. Raises InvalidArguments for what the model can correct, and HttpProblem."""
    check_names(arguments, "name", "description", "code", "language", "execution")
    caller = await sender.authorize("create")
    fields = {"fromExecution" if name == "execution" else name: value for name, value in arguments.items()}
    try:
        if "fromExecution" not in fields:
            fields.setdefault("language", sender.list_languages()[0])
        new = NewSkill.model_validate({**fields, "user": sender.options.user}, strict=True)
        skill = await sender.dependencies.get(SkillService).save(new, caller=caller)
    except ValidationError as error:
        raise InvalidArguments(explain_errors(error, NewSkill)) from None
    except HttpProblem as problem:
        if problem.status in (403, 404, 422):
            raise InvalidArguments(problem.detail.replace("fromExecution", "execution")) from None
        raise
    view = build_view(skill)
    text = f"saved {view['name']} version {view['version']} as a draft; {view['import']}"
    return CallToolResult(
        content=[TextContent(text=text)],
        structured_content={name: view[name] for name in _SHOWN if name in view},
    )


_FIELDS: Final = {
    "code": "code",
    **{option.argument: option.field for option in EXECUTION_OPTIONS.values() if option.argument},
}
"""Path of the field that an argument sets."""
_OF_ADDRESS: Final = tuple(
    option
    for option in EXECUTION_OPTIONS.values()
    if option.name in McpOptions.model_fields and option.argument not in _FIELDS
)
"""Options that a client's address sets, and no argument."""
_FIELDS_OF_SKILL: Final = {
    "name": "skillRef.name",
    "version": "skillRef.version",
    "arguments": "context",
    "timeout": _FIELDS["timeout"],
}
"""The same of `run_skill`."""
_EVERY_TOOL: Final = ["*.*"]


def parse_arguments(request: McpRequest, arguments: Mapping[str, Any]) -> NewExecution:
    """Return the new execution. Raises InvalidArguments for what the model can correct, HttpProblem for all else."""
    reference = arguments.get(REFERENCE)
    if isinstance(reference, SkillReference):
        arguments = {name: value for name, value in arguments.items() if name != REFERENCE}
    check_names(arguments, *definitions.RUN_CODE.input_schema["properties"])
    options = request.sender.options
    body: dict[str, Any] = {}
    for name, value in arguments.items():
        if value is not None:
            set_field(body, _FIELDS[name], value)
    if isinstance(reference, SkillReference):
        body |= {"skillRef": reference.to_api()}
    elif not body.get("code"):
        raise InvalidArguments("code is missing: send the code to run")
    allowed = request.sender.allowed_tools
    body.setdefault("tools", _EVERY_TOOL if allowed is None else allowed)
    set_field(body, "limits.outputBytes", choose_output_bytes(options.max_tokens))
    if (language := request.sender.list_languages()[0]) != DEFAULT_LANGUAGE:
        body.setdefault("language", language)
    for option in _OF_ADDRESS:
        if (chosen := getattr(options, option.name)) is not None:
            set_field(body, option.field, chosen)
    try:
        new = parse_spec(NewExecution, json.dumps(body).encode(), request.memory)
    except HttpProblem as problem:
        raise explain_problem(problem, runs_skill=isinstance(reference, SkillReference)) from None
    _check_tools(new.tools, options.tools)
    return new


def _check_tools(patterns: Sequence[str], chosen: Sequence[str] | None) -> None:
    """Raise InvalidArguments for a pattern beyond the tools of the URL."""
    if chosen is None:
        return
    allowed = ToolPatterns(chosen)
    for pattern in patterns:
        if not allowed.cover(pattern):
            raise InvalidArguments(f"tools: {pattern[:100]} is not within {', '.join(chosen)}")


def explain_problem(problem: HttpProblem, *, runs_skill: bool) -> Exception:
    """Return InvalidArguments if all of a problem's fields are arguments, or else the problem."""
    fields = _FIELDS_OF_SKILL if runs_skill else _FIELDS
    named = [(_name_argument(error.field, fields), error.message) for error in problem.errors]
    if problem.status not in (400, 403, 413, 422) or not named or not all(name for name, _ in named):
        return problem
    return InvalidArguments("; ".join(f"{name}: {message}" for name, message in named))


def _name_argument(field: str, fields: Mapping[str, str]) -> str | None:
    """Return a field of an error by the argument that sets it, or None if none does."""
    for name, path in fields.items():
        if f"{field}.".startswith(f"{path}."):
            return name + field.removeprefix(path)
    return None


async def run_code(request: McpRequest, params: CallToolRequestParams) -> RunOutcome:
    """Run code, or follow a run that the client has left for an input. Raises InvalidArguments and HttpProblem."""
    if params.request_state is not None:
        point = ResumePoint.parse(params.request_state, field="requestState")
        decisions = read_decisions(params, point)
        try:
            return await resume_run(request, point, decisions=decisions)
        except HttpProblem:
            # the run can't be followed now, which is no reason to ask its user again
            await record_decisions(request.sender, decisions)
            raise
    async with starting_run(request, params) as (run, execution):
        return await run.follow(execution)


@asynccontextmanager
async def starting_run(
    request: McpRequest, params: CallToolRequestParams, *, of_task: bool = False
) -> AsyncIterator[tuple[Run, Object]]:
    """Create the execution of a call, or find the one that the call repeats, and follow it within the context.

    `of_task` says that the client gets a task at once. Raises InvalidArguments and HttpProblem.
    """
    sender, service = request.sender, request.sender.dependencies.executions
    caller = await sender.authorize("create")
    with service.hold_wait(caller, service.max_wait_seconds):
        new = parse_arguments(request, params.arguments or {})
        metadata = new.read_metadata()
        if new.skill_ref is not None and (language := await check_skill(sender, new.skill_ref)) is not None:
            new = new.model_copy(update={"language": language})
        try:
            spec = await service.check(new.read_spec(), caller=caller)
        except HttpProblem as problem:
            raise explain_problem(problem, runs_skill=new.skill_ref is not None) from None
        run = await Run.prepare(request, of_task=of_task)
        key = _read_idempotency_key(request)
        async with run.starting(spec, metadata=metadata, caller=caller, idempotency_key=key) as execution:
            del new, spec
            _forget_arguments(request, params)
            yield run, execution


async def resume_run(
    request: McpRequest, point: ResumePoint, *, decisions: Decisions | None = None, of_task: bool = False
) -> RunOutcome:
    """Follow an execution of the caller from a point, and record what its user decided. Raises HttpProblem.

    `of_task` says that the client follows it as a task of revision 2025-11-25.
    """
    sender, service = request.sender, request.sender.dependencies.executions
    caller = await sender.authorize("get")
    with service.hold_wait(caller, service.max_wait_seconds):
        key = (sender.namespace, point.execution)
        await find_own_run(sender, point.execution)
        run = await Run.prepare(request, point, of_task=of_task)
        async with run.watching(key) as execution:
            if decisions:
                await run.wait_for_relay()
                await record_decisions(request.sender, decisions)
            return await run.follow(execution)


def _read_idempotency_key(request: McpRequest) -> str | None:
    meta = request.exchange.message.params.get("_meta")
    key = meta.get(IDEMPOTENCY_META) if isinstance(meta, Mapping) else None
    key = request.sender.http.headers.get("idempotency-key") if key is None else key
    if key is None:
        return None
    if not isinstance(key, str) or not is_idempotency_key(key):
        raise invalid_field(IDEMPOTENCY_META, "1 to 255 printable ASCII characters are allowed")
    return key


def _forget_arguments(request: McpRequest, params: CallToolRequestParams) -> None:
    """Release the memory of code and context, which the SDK keeps until the request ends."""
    raw: Any = request.exchange.message.params.get("arguments")
    for arguments in (raw, params.arguments):
        if isinstance(arguments, dict):
            arguments.clear()
    request.memory.release()


_OF_SENDER: Final[Mapping[str, Callable[[Sender, Mapping[str, Any]], Awaitable[CallToolResult]]]] = {
    "save_skill": save_skill,
    "search_tools": search_tools,
    "describe_tools": describe_tools,
    "read_file": read_file,
    "write_file": write_file,
}
"""Tools that need nothing of the request but its sender."""
