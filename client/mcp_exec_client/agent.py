"""Agent loop of a model that works by code: it searches tools, reads their schemas, writes code and reads its output.

The loop has the five steps of "code execution with MCP"
(https://www.anthropic.com/engineering/code-execution-with-mcp) as tool calls of the Messages API, and traces each step.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from time import perf_counter
from typing import Any, Final, Literal

from anthropic import AsyncAnthropic
from anthropic.types import Message, MessageParam, ToolParam, ToolResultBlockParam, ToolUseBlock

from mcp_exec_client.gateway import GatewayClient, GatewayResponse
from mcp_exec_client.prompt import VERSION, system_prompt
from mcp_exec_tools.patterns import matches_any

StepKind = Literal["search", "describe", "code", "execute", "results", "answer"]

MAX_RESULT_CHARACTERS: Final = 20_000
"""Most characters of one result that the model receives. A longer result is cut, with the advice to print less."""
_MAX_TOKENS: Final = 8192
_MAX_TOOLS: Final = 50
_ALL_TOOLS: Final = 1000
"""The gateway's limit of a search. Tools that the code may not call are removed from its results, so all are needed."""
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
    gateway: GatewayClient
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

        Raises AgentError if the model gives no answer within its turns or the gateway rejects the caller,
        GatewayUnreachable, and the SDK's errors.
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
        message = await self.model.messages.create(
            model=self.model_name, max_tokens=_MAX_TOKENS, system=system, tools=TOOLS, messages=messages
        )
        trace.turns += 1
        trace.input_tokens += message.usage.input_tokens
        trace.output_tokens += message.usage.output_tokens
        return message

    def _record(self, trace: RunTrace, step: AgentStep) -> None:
        trace.steps.append(step)
        self.on_step(step)

    async def _list_servers(self) -> list[str]:
        response = await self.gateway.request("GET", "/api/v1/mcp/tools/search", query="", limit=str(_ALL_TOOLS))
        if response.status != HTTPStatus.OK:
            raise AgentError(f"the gateway did not list tools: {response.error}")
        return sorted({str(tool["server"]) for tool in self._select_callable(response)})

    def _select_callable(self, response: GatewayResponse) -> list[dict[str, Any]]:
        """Return the tools of a response that the code may call."""
        return [tool for tool in response.items if matches_any(self.tools, server=tool["server"], tool=tool["name"])]

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
        response = await self.gateway.request(
            "GET", "/api/v1/mcp/tools/search", query=query, detail_level=level, limit=str(_ALL_TOOLS)
        )
        if response.status != HTTPStatus.OK:
            raise AgentError(f"the gateway rejected the request: {response.error}")
        kind: StepKind = "describe" if level == "full" else "search"
        milliseconds = (perf_counter() - began) * 1000
        tools = self._select_callable(response)[:limit]
        self._record(trace, AgentStep(kind=kind, text=f"{query!r}: {len(tools)} tools", milliseconds=milliseconds))
        return _cut(json.dumps(tools, separators=(",", ":"), ensure_ascii=False))

    async def _execute(self, arguments: dict[str, Any], trace: RunTrace) -> str:
        _check_names(arguments, "code", "context")
        code = arguments.get("code")
        if not isinstance(code, str) or not code.strip():
            raise _InvalidToolUse("code must be a text with a block of Python")
        self._record(trace, AgentStep(kind="code", text=code))
        began = perf_counter()
        body = {
            "code": code,
            "context": arguments.get("context") or {},
            "tools": self.tools,
            "poolRef": {"name": self.pool},
            "timeoutSeconds": self.timeout_seconds,
        }
        response = await self.gateway.request("POST", "/v1/executions", body=body, wait=str(self.timeout_seconds + 60))
        _check_response(response)
        execution, milliseconds = response.data, (perf_counter() - began) * 1000
        if response.status == HTTPStatus.ACCEPTED:
            await self.gateway.request("DELETE", f"/v1/executions/{execution['name']}")
            raise _InvalidToolUse(
                f"the code did not start or end in time: {execution.get('phase')} {execution.get('reason') or ''}"
            )
        failed = execution["phase"] != "Succeeded"
        text = f"{execution['name']}: {execution['phase']} {execution.get('reason') or ''}".rstrip()
        self._record(trace, AgentStep(kind="execute", text=text, milliseconds=milliseconds, failed=failed))
        output = execution.get("output") or {}
        result = {"phase": execution["phase"], "reason": execution.get("reason"), "error": execution.get("error")}
        result |= {name: output.get(name) for name in ("stdout", "stderr", "result", "truncated")}
        text = _cut(json.dumps({name: value for name, value in result.items() if value}, ensure_ascii=False))
        self._record(trace, AgentStep(kind="results", text=text, failed=failed))
        return text


def _check_names(arguments: dict[str, Any], *names: str) -> None:
    unknown = sorted(set(arguments) - set(names))
    if unknown:
        raise _InvalidToolUse(f"unknown: {', '.join(unknown)}; allowed are {', '.join(names)}")


def _check_response(response: GatewayResponse) -> None:
    """Raise _InvalidToolUse if the model can correct code or context, AgentError for any other error."""
    if response.status in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
        return
    fields = {str(error.get("field")).partition(".")[0] for error in response.data.get("errors") or []}
    if response.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (fields and fields <= set(_MODEL_FIELDS)):
        raise _InvalidToolUse(response.error)
    raise AgentError(f"the gateway rejected the request: {response.error}")


def _cut(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARACTERS:
        return text
    return f"{text[:MAX_RESULT_CHARACTERS]}... ({len(text)} characters in all; ask for less, or print less)"
