"""Agent loop of a model that works by code: it searches tools, reads their schemas, writes code and reads its output.

The loop has the five steps of "code execution with MCP"
(https://www.anthropic.com/engineering/code-execution-with-mcp) as tool calls of the Messages API, and traces each step.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, Literal

from anthropic import APIConnectionError, AsyncAnthropic
from anthropic.types import Message, MessageParam, ToolParam, ToolResultBlockParam, ToolUseBlock

from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import GatewayError, RequestInvalid, WaitExpired
from mcp_exec_client.types import Execution, ToolMatch
from mcp_exec_tools.patterns import matches_any
from mcp_exec_tools.prompt import VERSION, system_prompt
from mcp_exec_tools.search.index import DetailLevel

StepKind = Literal["search", "describe", "code", "execute", "results", "answer"]

MAX_RESULT_CHARACTERS: Final = 20_000
"""Most characters of one result that the model receives. A longer result is cut, with the advice to print less."""
_MAX_TOKENS: Final = 8192
_MAX_TOOLS: Final = 50
_ALL_TOOLS: Final = 1000
"""The gateway's limit of a search. Tools that the code may not call are removed from its results, so all are needed."""
_START_SECONDS: Final = 60.0
"""Time for a block of code to get a sandbox, in addition to its time limit."""
_MODEL_FIELDS: Final = ("code", "context")
"""Fields of an execution that come from the model; all others come from the caller."""
_DETAIL_LEVELS: Final = ("name_only", "with_description", "full")
TOOLS: Final[list[ToolParam]] = [
    {
        "name": "search_tools",
        "description": "Find tools that code in the sandbox may call, best match first.",
        "input_schema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "a few words; empty lists all tools"},
                "detail_level": {"type": "string", "enum": list(_DETAIL_LEVELS), "default": "with_description"},
                "limit": {"type": "integer", "minimum": 1, "maximum": _MAX_TOOLS, "default": 10},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    },
    {
        "name": "execute_code",
        "description": "Run a block of Python in a fresh sandbox; return its output and its last expression's value.",
        "input_schema": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "context": {"type": "object", "description": "values that the code has as variables"},
            },
            "required": ["code"],
            "additionalProperties": False,
        },
    },
]


class AgentError(Exception):
    """Failure of a task. The text says why."""


@dataclass(frozen=True, kw_only=True)
class AgentStep:
    """One step of the agent."""

    kind: StepKind
    text: str
    """By kind: the query, the code, the execution's name and phase, the result for the model, or the answer."""
    milliseconds: float = 0.0
    failed: bool = False


@dataclass(kw_only=True)
class RunTrace:
    """The steps of a task, in order, and their cost."""

    task: str
    model: str
    prompt_version: str = VERSION
    steps: list[AgentStep] = field(default_factory=list)
    turns: int = 0
    """Messages of the model."""
    input_tokens: int = 0
    output_tokens: int = 0


class _InvalidToolUse(Exception):
    """A tool use of the model that is not possible. The model receives the text and may try again."""


@dataclass(kw_only=True)
class Agent:
    """Runs tasks, each in a conversation of its own."""

    model: AsyncAnthropic
    gateway: AsyncClient
    model_name: str
    tools: list[str]
    """Patterns of the tools that the model's code may call, such as `github.*`."""
    pool: str = "default"
    timeout_seconds: int = 30
    """Time limit of one block of code."""
    max_turns: int = 12
    on_step: Callable[[AgentStep], None] = lambda _: None
    """Called with each step as soon as it is done."""

    async def run(self, task: str, trace: RunTrace) -> str:
        """Run a task and return the answer. Each step is added to `trace` as soon as it is done.

        Raises AgentError if the model cannot be reached or gives no answer within its turns, or the gateway rejects the
        caller, McpExecError if the gateway does not answer, and the SDK's errors.
        """
        system = system_prompt(await self._list_servers())
        messages: list[MessageParam] = [{"role": "user", "content": task}]
        for _ in range(self.max_turns):
            message = await self._ask_model(system, messages, trace)
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                text = "".join(block.text for block in message.content if block.type == "text")
                if message.stop_reason not in ("end_turn", "stop_sequence"):
                    raise AgentError(f"the model stopped without an answer: {message.stop_reason}")
                self._record(trace, AgentStep(kind="answer", text=text))
                return text
            messages.append({"role": "assistant", "content": message.content})
            results = [await self._handle(call, trace) for call in calls]
            messages.append({"role": "user", "content": results})
        raise AgentError(f"the model gave no answer within {self.max_turns} turns")

    async def _ask_model(self, system: str, messages: list[MessageParam], trace: RunTrace) -> Message:
        try:
            message = await self.model.messages.create(
                model=self.model_name, max_tokens=_MAX_TOKENS, system=system, tools=TOOLS, messages=messages
            )
        except APIConnectionError as error:
            why = f" ({error.__cause__})" if str(error.__cause__ or "") else ""
            hint = "check $ANTHROPIC_BASE_URL, the network and its proxy"
            raise AgentError(f"the model at {self.model.base_url} cannot be reached{why}: {hint}") from error
        trace.turns += 1
        trace.input_tokens += message.usage.input_tokens
        trace.output_tokens += message.usage.output_tokens
        return message

    def _record(self, trace: RunTrace, step: AgentStep) -> None:
        trace.steps.append(step)
        self.on_step(step)

    async def _list_servers(self) -> list[str]:
        try:
            return sorted({tool.server for tool in await self._find_callable("", "name_only")})
        except GatewayError as error:
            raise AgentError(f"the gateway did not list tools: {error}") from error

    async def _find_callable(self, query: str, detail_level: DetailLevel) -> list[ToolMatch]:
        """Return the matching tools that the code may call."""
        found = await self.gateway.search_tools(query, detail_level=detail_level, limit=_ALL_TOOLS)
        return [tool for tool in found if matches_any(self.tools, server=tool.server, tool=tool.name)]

    async def _handle(self, call: ToolUseBlock, trace: RunTrace) -> ToolResultBlockParam:
        arguments = call.input if isinstance(call.input, dict) else {}
        try:
            if call.name == "search_tools":
                text = await self._search(arguments, trace)
            elif call.name == "execute_code":
                text = await self._execute(arguments, trace)
            else:
                raise _InvalidToolUse(
                    f"there is no tool {call.name!r}; the tools are {' and '.join(tool['name'] for tool in TOOLS)}"
                )
        except _InvalidToolUse as error:
            self._record(trace, AgentStep(kind="results", text=str(error), failed=True))
            return {"type": "tool_result", "tool_use_id": call.id, "content": str(error), "is_error": True}
        return {"type": "tool_result", "tool_use_id": call.id, "content": text}

    async def _search(self, arguments: dict[str, Any], trace: RunTrace) -> str:
        _check_names(arguments, "query", "detail_level", "limit")
        level, limit = arguments.get("detail_level", "with_description"), arguments.get("limit", 10)
        if level not in _DETAIL_LEVELS or not isinstance(limit, int) or not 1 <= limit <= _MAX_TOOLS:
            raise _InvalidToolUse(
                f"detail_level must be one of {', '.join(_DETAIL_LEVELS)}, limit a number from 1 to {_MAX_TOOLS}"
            )
        began, query = perf_counter(), str(arguments.get("query", ""))
        try:
            tools = (await self._find_callable(query, level))[:limit]
        except GatewayError as error:
            raise AgentError(f"the gateway rejected the request: {error}") from error
        kind: StepKind = "describe" if level == "full" else "search"
        milliseconds = (perf_counter() - began) * 1000
        self._record(trace, AgentStep(kind=kind, text=f"{query!r}: {len(tools)} tools", milliseconds=milliseconds))
        shown = [tool.model_dump(by_alias=True, exclude_unset=True) for tool in tools]
        return _cut(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))

    async def _execute(self, arguments: dict[str, Any], trace: RunTrace) -> str:
        _check_names(arguments, "code", "context")
        code = arguments.get("code")
        if not isinstance(code, str) or not code.strip():
            raise _InvalidToolUse("code must be a text with a block of Python")
        self._record(trace, AgentStep(kind="code", text=code))
        began = perf_counter()
        execution = await self._run(code, arguments.get("context") or {})
        milliseconds = (perf_counter() - began) * 1000
        failed = not execution.succeeded
        text = f"{execution.name}: {execution.phase} {execution.reason}".rstrip()
        self._record(trace, AgentStep(kind="execute", text=text, milliseconds=milliseconds, failed=failed))
        text = _cut(describe_execution(execution))
        self._record(trace, AgentStep(kind="results", text=text, failed=failed))
        return text

    async def _run(self, code: str, context: dict[str, Any]) -> Execution:
        """Run code. Raises _InvalidToolUse if the model can correct code or context, AgentError if it cannot."""
        try:
            return await self.gateway.run(
                code,
                context=context,
                tools=self.tools,
                pool=self.pool,
                timeout_seconds=self.timeout_seconds,
                wait_seconds=self.timeout_seconds + _START_SECONDS,
            )
        except WaitExpired as error:
            raise _InvalidToolUse(str(error)) from error
        except ValueError as error:
            raise _InvalidToolUse(f"the code and its context cannot be sent: {error}") from error
        except GatewayError as error:
            fields = {each.field.partition(".")[0] for each in error.errors}
            too_large = error.kind == "body-too-large"
            if isinstance(error, RequestInvalid) and (too_large or (fields and fields <= set(_MODEL_FIELDS))):
                raise _InvalidToolUse(str(error)) from error
            raise AgentError(f"the gateway rejected the request: {error}") from error


_MAX_ARTIFACTS: Final = 20
"""Artifacts of one execution that the model receives by name and preview."""


def describe_execution(execution: Execution) -> str:
    """Return the outcome of a block of code as the model receives it: without empty fields, but with any result."""
    error = execution.error.to_api() if execution.error else None
    fields: dict[str, Any] = {"phase": execution.phase, "reason": execution.reason, "error": error}
    if output := execution.output:
        fields |= {name: getattr(output, name) for name in ("stdout", "stderr", "truncated")}
    fields = {name: value for name, value in fields.items() if value}
    if execution.output is not None and execution.output.result is not None:
        fields["result"] = execution.output.result
    if execution.artifacts:
        fields["artifacts"] = [
            {"name": each.name, "mediaType": each.media_type, "bytes": each.bytes, "preview": each.preview or ""}
            for each in execution.artifacts[:_MAX_ARTIFACTS]
        ]
    if (skills := execution.skills) and (skills.saved or skills.refused):
        fields["skills"] = {"saved": skills.saved, "refused": skills.refused}
    return json.dumps(fields, ensure_ascii=False)


def _check_names(arguments: dict[str, Any], *names: str) -> None:
    unknown = sorted(set(arguments) - set(names))
    if unknown:
        raise _InvalidToolUse(f"unknown: {', '.join(unknown)}; allowed are {', '.join(names)}")


def _cut(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARACTERS:
        return text
    return f"{text[:MAX_RESULT_CHARACTERS]}... ({len(text)} characters in all; ask for less, or print less)"
