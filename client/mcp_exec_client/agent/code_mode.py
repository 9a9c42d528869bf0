"""Work by code: the system prompt, two tools, and what they do. These are the parts for an application's own loop."""

import asyncio
import json
import uuid
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Unpack, cast

from mcp_exec_api.constants import DEFAULT_LANGUAGE, Language
from mcp_exec_api.wire.tools import FoundTool
from mcp_exec_client.agent.approvals import OnApproval, decide_approval
from mcp_exec_client.agent.outcomes import (
    AgentError,
    AgentStep,
    InvalidToolUse,
    OnEvent,
    RunEvent,
    StepKind,
    ToolOutcome,
    check_names,
    cut,
    describe_execution,
    ignore_event,
)
from mcp_exec_client.agent.providers.model import Block
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import GatewayError, GatewayUnreachable, McpExecError, RequestInvalid, WaitExpired
from mcp_exec_client.events import ApprovalEvent
from mcp_exec_client.options import RunOptions, suggesting
from mcp_exec_client.types import Execution
from mcp_exec_tools.languages import TITLES
from mcp_exec_tools.names import snake_case
from mcp_exec_tools.patterns import ToolPatterns
from mcp_exec_tools.prompt import describe_libraries, system_prompt
from mcp_exec_tools.search.index import DetailLevel
from mcp_exec_tools.source.lines import join_blocks

_START_SECONDS: Final = 60.0
"""Time for a block of code to get a sandbox, in addition to its time limit."""
_TIMEOUT_SECONDS: Final = 30
_CANCEL_SECONDS: Final = 5.0
_MAX_DECISIONS: Final = 100
"""Approvals of one block of code that the application decides; others wait for somebody else."""
_MAX_TOOLS: Final = 50
_ALL_TOOLS: Final = 1000
"""The gateway's limit of a search. Tools that the code may not call are removed from its results, so all are needed."""
_MODEL_FIELDS: Final = ("code", "context")
"""Fields of an execution that come from the model; all others come from the application."""
_DETAIL_LEVELS: Final = ("name_only", "with_description", "full")
_MAX_FENCED: Final = 256 * 1024
"""Most characters of an answer that is searched for code."""
_VARIABLES: Final = "\nVariables that the application gives your code, whose values are not shown here: {names}.\n"
_EXECUTE: Final = "Run a block of {} in a fresh sandbox; return its output and its last expression's value."
TOOLS: Final[list[Block]] = [
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
        "description": _EXECUTE.format(TITLES[DEFAULT_LANGUAGE]),
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
CODE_TOOL_NAMES: Final = tuple(str(tool["name"]) for tool in TOOLS)


@dataclass(kw_only=True)
class FollowedRun:
    """Runs blocks of code, and passes their events on."""

    client: AsyncClient
    on_event: OnEvent
    on_approval: OnApproval | None = None

    async def run(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """Run code and return the execution at its end. Raises McpExecError; WaitExpired if it takes too long.

        The time that the application takes for approvals does not count.
        """
        seconds = (options.get("timeout_seconds") or _TIMEOUT_SECONDS) + _START_SECONDS
        key = uuid.uuid4().hex
        try:
            execution = await self.client.submit(code, idempotency_key=key, **options)
        except asyncio.CancelledError:
            await self._abandon(code, key, options)
            raise
        try:
            async with asyncio.timeout(seconds) as limit:
                await self._follow(execution.name, limit, seconds)
                return await self.client.wait(execution.name, wait_seconds=seconds)
        except TimeoutError as error:
            await self._cancel(execution.name)
            raise WaitExpired(f"execution {execution.name} has not ended within {seconds:g} seconds") from error
        except (asyncio.CancelledError, WaitExpired):
            await self._cancel(execution.name)
            raise

    async def _follow(self, name: str, limit: asyncio.Timeout, seconds: float) -> None:
        """Pass on the events up to the end, or up to a lost stream: the execution continues without it."""
        deciding: set[asyncio.Task[None]] = set()
        decided = 0

        def restart(task: asyncio.Task[None]) -> None:
            deciding.discard(task)
            if not deciding and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + seconds)

        try:
            async with aclosing(self.client.stream(name)) as events:
                async for event in events:
                    await self.on_event(RunEvent(execution=name, event=event))
                    if isinstance(event, ApprovalEvent) and self.on_approval and decided < _MAX_DECISIONS:
                        decided += 1
                        decision = decide_approval(self.client, name, event.approval, self.on_approval)
                        task = asyncio.create_task(decision)
                        deciding.add(task)
                        task.add_done_callback(restart)
                        limit.reschedule(None)
        except GatewayUnreachable:
            return
        finally:
            for task in deciding:
                task.remove_done_callback(restart)
                task.cancel()
            if deciding:
                await asyncio.gather(*deciding, return_exceptions=True)
            if deciding and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + seconds)

    async def _abandon(self, code: str, key: str, options: RunOptions) -> None:
        """Cancel an execution whose name is not known: the same request, with the same key, returns it."""
        with suppress(McpExecError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                execution = await self.client.submit(code, idempotency_key=key, **options)
                await self.client.cancel(execution.name)

    async def _cancel(self, name: str) -> None:
        with suppress(McpExecError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.client.cancel(name)


@suggesting
class CodeMode:
    """Code execution for an existing loop: a system prompt, tool definitions, and a handler of tool uses.

    Everything in the options comes from the application and never from the model: the user, the patterns of tools, the
    conversation, and `context`. The prompt has its names and types; code that the model writes can print the values.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        on_approval: OnApproval | None = None,
        on_event: OnEvent = ignore_event,
        **options: Unpack[RunOptions],
    ) -> None:
        self._client = client
        self._on_event = on_event
        self._on_approval = on_approval
        self._context = dict(options.pop("context", None) or {})
        self._allowed = ToolPatterns(options.get("tools") or ())
        self._language: Language = options.get("language") or DEFAULT_LANGUAGE
        self._options = options

    async def system_prompt(self) -> str:
        """Return the system prompt, which lists the servers of the allowed tools and the libraries of the pool.

        Raises AgentError.
        """
        servers = sorted({tool.server for tool in await self.find_tools("", "name_only")})
        names = ", ".join(f"`{name}` ({_describe_type(value)})" for name, value in self._context.items())
        prompt = system_prompt(servers, libraries=await self._describe_libraries(), language=self._language)
        return prompt + (_VARIABLES.format(names=names) if names else "")

    async def _describe_libraries(self) -> str:
        """Return what code can import in words, or an empty text if the gateway does not know it."""
        if self._language != DEFAULT_LANGUAGE:
            return ""  # the prompt says it
        try:
            pools = (await self._client.stats()).pools
        except GatewayError as error:
            raise AgentError(f"the gateway did not list pools: {error}") from error
        name = self._options.get("pool") or "default"
        pool = next((pool for pool in pools if pool.name == name), None)
        libraries = [] if pool is None else [(each.name, each.version) for each in pool.libraries or ()]
        return describe_libraries(pool.python if pool is not None else None, libraries)

    def tools(self) -> list[Block]:
        """Return the definitions of the tools; they never change, so that prompt caching works."""
        search, execute = TOOLS
        return [dict(search), {**execute, "description": _EXECUTE.format(TITLES[self._language])}]

    async def handle(self, tool_use: Any) -> Block:
        """Do what the model asks for, and return the `tool_result` block.

        `tool_use` is the SDK's ToolUseBlock or its JSON. Raises AgentError if the gateway rejects the application's
        own options, and McpExecError if it does not respond.
        """
        use = tool_use if isinstance(tool_use, Mapping) else tool_use.model_dump()
        outcome = await self.work(str(use["name"]), use.get("input"), on_event=self._on_event)
        return outcome.to_block(str(use["id"]))

    @property
    def language(self) -> Language:
        """Language of the code."""
        return self._language

    @staticmethod
    def extract_code(text: str, *, language: Language = DEFAULT_LANGUAGE) -> str | None:
        """Return the code of an answer's fenced blocks, or None if it has none: for models without tools."""
        return join_blocks(text[:_MAX_FENCED], language=language)

    async def work(self, name: str, given: object, *, on_event: OnEvent) -> ToolOutcome:
        """Use a tool and return the outcome. Raises AgentError and McpExecError."""
        arguments = dict(given) if isinstance(given, Mapping) else {}
        try:
            if name == "search_tools":
                return await self._search(arguments, on_event)
            if name == "execute_code":
                return await self._execute(arguments, on_event)
            raise InvalidToolUse(f"there is no tool {name[:100]!r}; the tools are {' and '.join(CODE_TOOL_NAMES)}")
        except InvalidToolUse as error:
            await on_event(AgentStep(kind="results", text=str(error), failed=True))
            return ToolOutcome(text=str(error), failed=True, refused=True, problem=str(error))

    async def find_tools(self, query: str, detail_level: DetailLevel) -> list[FoundTool]:
        """Return the matching tools that the code may call. Raises AgentError."""
        try:
            found = await self._client.search_tools(
                query, detail_level=detail_level, limit=_ALL_TOOLS, language=self._language
            )
        except GatewayError as error:
            raise AgentError(f"the gateway did not list tools: {error}") from error
        return [tool for tool in found if self._allows(tool)]

    def _allows(self, tool: FoundTool) -> bool:
        # patterns name tools as servers do, and not as a language does
        return any(self._allowed.match(tool.server, name) for name in {tool.name, snake_case(tool.name)})

    async def _search(self, arguments: dict[str, Any], on_event: OnEvent) -> ToolOutcome:
        check_names(arguments, "query", "detail_level", "limit")
        level, limit = arguments.get("detail_level", "with_description"), arguments.get("limit", 10)
        if level not in _DETAIL_LEVELS or not isinstance(limit, int) or not 1 <= limit <= _MAX_TOOLS:
            raise InvalidToolUse(
                f"detail_level must be one of {', '.join(_DETAIL_LEVELS)}, limit a number from 1 to {_MAX_TOOLS}"
            )
        began, query = perf_counter(), str(arguments.get("query", ""))
        tools = (await self.find_tools(query, level))[:limit]
        kind: StepKind = "describe" if level == "full" else "search"
        milliseconds = (perf_counter() - began) * 1000
        await on_event(AgentStep(kind=kind, text=f"{query!r}: {len(tools)} tools", milliseconds=milliseconds))
        shown = [tool.model_dump(by_alias=True, exclude_unset=True) for tool in tools]
        return ToolOutcome(text=cut(json.dumps(shown, separators=(",", ":"), ensure_ascii=False)))

    async def _execute(self, arguments: dict[str, Any], on_event: OnEvent) -> ToolOutcome:
        check_names(arguments, *_MODEL_FIELDS)
        code = arguments.get("code")
        if not isinstance(code, str) or not code.strip():
            raise InvalidToolUse(f"code must be a text with a block of {TITLES[self._language]}")
        context = self._merge(arguments.get("context") or {})
        await on_event(AgentStep(kind="code", text=code))
        began = perf_counter()
        execution = await self._run(code, context, on_event)
        milliseconds = (perf_counter() - began) * 1000
        failed = not execution.succeeded
        text = f"{execution.name}: {execution.phase} {execution.reason}".rstrip()
        await on_event(AgentStep(kind="execute", text=text, milliseconds=milliseconds, failed=failed))
        text = cut(describe_execution(execution))
        await on_event(AgentStep(kind="results", text=text, failed=failed))
        problem = f"{execution.error.type}: {execution.error.message}" if execution.error else execution.reason
        return ToolOutcome(text=text, failed=failed, problem=problem)

    def _merge(self, given: object) -> dict[str, Any]:
        """Return the model's context with the application's, whose names the model's own cannot take."""
        if not isinstance(given, Mapping):
            raise InvalidToolUse("context: it must be an object of names and values")
        if taken := sorted(set(given) & set(self._context)):
            raise InvalidToolUse(f"context: {', '.join(taken)[:200]} come from the application; use other names")
        return {**given, **self._context}

    async def _run(self, code: str, context: dict[str, Any], on_event: OnEvent) -> Execution:
        """Run code. Raises InvalidToolUse if the model can correct code or context, AgentError if it cannot."""
        options = cast(RunOptions, {**self._options, "context": context})
        run = FollowedRun(client=self._client, on_event=on_event, on_approval=self._on_approval)
        try:
            return await run.run(code, **options)
        except WaitExpired as error:
            raise InvalidToolUse(str(error)) from error
        except ValueError as error:
            raise InvalidToolUse(f"the code and its context cannot be sent: {error}") from error
        except GatewayError as error:
            fields = {each.field.partition(".")[0] for each in error.errors}
            too_large = error.kind == "body-too-large"
            if isinstance(error, RequestInvalid) and (too_large or (fields and fields <= set(_MODEL_FIELDS))):
                raise InvalidToolUse(str(error)) from error
            raise AgentError(f"the gateway rejected the request: {error}") from error


def _describe_type(value: object) -> str:
    names = {str: "text", bool: "boolean", int: "number", float: "number", list: "list", tuple: "list", dict: "object"}
    return names.get(type(value), "null" if value is None else "value")
