"""A model that works by code: it searches tools, reads how they are called, writes code, and reads what that printed.

The five steps of "code execution with MCP" (https://www.anthropic.com/engineering/code-execution-with-mcp) as a loop of
tool calls of the Messages API. Each step is kept in a trace.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from time import perf_counter
from typing import Any, Final, Literal

from anthropic import AsyncAnthropic
from anthropic.types import Message, MessageParam, ToolParam, ToolResultBlockParam, ToolUseBlock

from mcp_exec_client.gateway import Answer, Gateway
from mcp_exec_client.prompt import VERSION, system_prompt
from mcp_exec_tools.patterns import any_matches

Kind = Literal["search", "describe", "code", "execute", "results", "answer"]

MAX_RESULT_CHARACTERS: Final = 20_000
"""What a model is told of one result at most: who prints more is told to print less."""
_MAX_TOKENS: Final = 8192
_MAX_TOOLS: Final = 50
_ALL_TOOLS: Final = 1000
"""The gateway's bound of a search. What code may not call is left out here, so the best of the rest may stand late."""
_OF_THE_MODEL: Final = ("code", "context")
"""What the model says of an execution; the rest is the caller's."""
_LEVELS: Final = ("name_only", "with_description", "full")
TOOLS: Final[list[ToolParam]] = [
    {
        "name": "search_tools",
        "description": "Finds tools that code in the sandbox may call, best first.",
        "input_schema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "a few words; empty lists all"},
                "detail_level": {"type": "string", "enum": list(_LEVELS), "default": "with_description"},
                "limit": {"type": "integer", "minimum": 1, "maximum": _MAX_TOOLS, "default": 10},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    },
    {
        "name": "execute_code",
        "description": "Runs a block of Python in a fresh sandbox; returns its output and its last expression's value.",
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
    """The task was not done. The text says why."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the work."""

    kind: Kind
    text: str
    """The query, the code, the execution's name and end, what the model was told, or its answer."""
    milliseconds: float = 0.0
    failed: bool = False


@dataclass(kw_only=True)
class Trace:
    """What was done for a task, in order, and what it cost."""

    task: str
    model: str
    prompt_version: str = VERSION
    steps: list[Step] = field(default_factory=list)
    turns: int = 0
    """Answers of the model."""
    input_tokens: int = 0
    output_tokens: int = 0


class _Wrong(Exception):
    """The model asked for something that can't be done; it is told, and may ask again."""


@dataclass(kw_only=True)
class Agent:
    """Works on tasks, one conversation each."""

    model: AsyncAnthropic
    gateway: Gateway
    model_name: str
    tools: list[str]
    """Patterns of the tools that its code may call, such as `github.*`."""
    pool: str = "default"
    timeout_seconds: int = 30
    """Of one block of code."""
    max_turns: int = 12
    tell: Callable[[Step], None] = lambda _: None
    """Is told of each step as it is done."""

    async def work(self, task: str, trace: Trace) -> str:
        """Does a task and returns the answer; each step is added to `trace` as it is done.

        Raises AgentError where the model came to no answer within its turns, or the gateway refuses its caller,
        Unreachable, and what the SDK raises.
        """
        system = system_prompt(await self._servers())
        messages: list[MessageParam] = [{"role": "user", "content": task}]
        for _ in range(self.max_turns):
            message = await self._asked(system, messages, trace)
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                text = "".join(block.text for block in message.content if block.type == "text")
                if message.stop_reason not in ("end_turn", "stop_sequence"):
                    raise AgentError(f"the model ended without an answer: {message.stop_reason}")
                self._note(trace, Step(kind="answer", text=text))
                return text
            messages.append({"role": "assistant", "content": message.content})
            results = [await self._done(call, trace) for call in calls]
            messages.append({"role": "user", "content": results})
        raise AgentError(f"there is no answer after {self.max_turns} turns")

    async def _asked(self, system: str, messages: list[MessageParam], trace: Trace) -> Message:
        message = await self.model.messages.create(
            model=self.model_name, max_tokens=_MAX_TOKENS, system=system, tools=TOOLS, messages=messages
        )
        trace.turns += 1
        trace.input_tokens += message.usage.input_tokens
        trace.output_tokens += message.usage.output_tokens
        return message

    def _note(self, trace: Trace, step: Step) -> None:
        trace.steps.append(step)
        self.tell(step)

    async def _servers(self) -> list[str]:
        answer = await self.gateway.ask("GET", "/api/v1/mcp/tools/search", query="", limit=str(_ALL_TOOLS))
        if answer.status != HTTPStatus.OK:
            raise AgentError(f"the gateway tells of no tools: {answer.said}")
        return sorted({str(each["server"]) for each in self._callable(answer)})

    def _callable(self, answer: Answer) -> list[dict[str, Any]]:
        """The tools of an answer that code may call."""
        return [each for each in answer.items if any_matches(self.tools, server=each["server"], tool=each["name"])]

    async def _done(self, call: ToolUseBlock, trace: Trace) -> ToolResultBlockParam:
        given = call.input if isinstance(call.input, dict) else {}
        try:
            if call.name == "search_tools":
                text = await self._search(given, trace)
            elif call.name == "execute_code":
                text = await self._execute(given, trace)
            else:
                raise _Wrong(f"there is no tool {call.name!r}, but {' and '.join(tool['name'] for tool in TOOLS)}")
        except _Wrong as wrong:
            self._note(trace, Step(kind="results", text=str(wrong), failed=True))
            return {"type": "tool_result", "tool_use_id": call.id, "content": str(wrong), "is_error": True}
        return {"type": "tool_result", "tool_use_id": call.id, "content": text}

    async def _search(self, given: dict[str, Any], trace: Trace) -> str:
        _known(given, "query", "detail_level", "limit")
        level, limit = given.get("detail_level", "with_description"), given.get("limit", 10)
        if level not in _LEVELS or not isinstance(limit, int) or not 1 <= limit <= _MAX_TOOLS:
            raise _Wrong(f"detail_level is one of {', '.join(_LEVELS)}, limit between 1 and {_MAX_TOOLS}")
        began, query = perf_counter(), str(given.get("query", ""))
        answer = await self.gateway.ask(
            "GET", "/api/v1/mcp/tools/search", query=query, detail_level=level, limit=str(_ALL_TOOLS)
        )
        if answer.status != HTTPStatus.OK:
            raise AgentError(f"the gateway refuses: {answer.said}")
        kind: Kind = "describe" if level == "full" else "search"
        milliseconds = (perf_counter() - began) * 1000
        found = self._callable(answer)[:limit]
        self._note(trace, Step(kind=kind, text=f"{query!r}: {len(found)} tools", milliseconds=milliseconds))
        return _bounded(json.dumps(found, separators=(",", ":"), ensure_ascii=False))

    async def _execute(self, given: dict[str, Any], trace: Trace) -> str:
        _known(given, "code", "context")
        code = given.get("code")
        if not isinstance(code, str) or not code.strip():
            raise _Wrong("code is the text of a block of Python")
        self._note(trace, Step(kind="code", text=code))
        began = perf_counter()
        body = {
            "code": code,
            "context": given.get("context") or {},
            "tools": self.tools,
            "poolRef": {"name": self.pool},
            "timeoutSeconds": self.timeout_seconds,
        }
        answer = await self.gateway.ask("POST", "/v1/executions", body=body, wait=str(self.timeout_seconds + 60))
        _check(answer)
        done, milliseconds = answer.data, (perf_counter() - began) * 1000
        if answer.status == HTTPStatus.ACCEPTED:
            await self.gateway.ask("DELETE", f"/v1/executions/{done['name']}")
            raise _Wrong(f"the code did not begin, or end, in time: {done.get('phase')} {done.get('reason') or ''}")
        failed = done["phase"] != "Succeeded"
        said = f"{done['name']}: {done['phase']} {done.get('reason') or ''}".rstrip()
        self._note(trace, Step(kind="execute", text=said, milliseconds=milliseconds, failed=failed))
        output = done.get("output") or {}
        told = {"phase": done["phase"], "reason": done.get("reason"), "error": done.get("error")}
        told |= {name: output.get(name) for name in ("stdout", "stderr", "result", "truncated")}
        text = _bounded(json.dumps({name: value for name, value in told.items() if value}, ensure_ascii=False))
        self._note(trace, Step(kind="results", text=text, failed=failed))
        return text


def _known(given: dict[str, Any], *names: str) -> None:
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise _Wrong(f"unknown: {', '.join(unknown)}; there are {', '.join(names)}")


def _check(answer: Answer) -> None:
    """What is wrong with code or context the model may mend; what is wrong with caller or gateway it can't."""
    if answer.status in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
        return
    fields = {str(error.get("field")).partition(".")[0] for error in answer.data.get("errors") or []}
    if answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (fields and fields <= set(_OF_THE_MODEL)):
        raise _Wrong(answer.said)
    raise AgentError(f"the gateway refuses: {answer.said}")


def _bounded(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARACTERS:
        return text
    return f"{text[:MAX_RESULT_CHARACTERS]}... ({len(text)} characters; ask for less, or print less)"
