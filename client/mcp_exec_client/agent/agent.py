"""A complete conversation with a model that works by code, by direct calls, or by both.

`AgentTask` does one task: turns of the model and its uses of tools, up to the answer.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Unpack, cast

from pydantic import ValidationError

from mcp_exec_api.wire.records import NewUsageReport
from mcp_exec_client.agent.code_mode import CodeMode
from mcp_exec_client.agent.conversation import ConversationHistory
from mcp_exec_client.agent.direct_mode import DirectMode
from mcp_exec_client.agent.hybrid_rules import HybridRules, TaskProfile
from mcp_exec_client.agent.modes import KillSwitch, ModeSelection, RolloutUnit, TaskSetup, estimate_definitions
from mcp_exec_client.agent.outcomes import (
    AgentAnswer,
    AgentError,
    AgentEvent,
    AgentLimits,
    AgentStep,
    ConversationUsage,
    LimitReached,
    Mode,
    ModelError,
    OnApproval,
    OnEvent,
    RunTrace,
    TaskBudget,
    TextDelta,
    TextDropped,
    TokenPrice,
    ignore_event,
)
from mcp_exec_client.agent.providers.model import Block, ModelProvider, ModelReply, ModelRequest, TokenCounts
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import McpExecError
from mcp_exec_client.event_stream import streamed
from mcp_exec_client.options import ExecutionOptions, RunOptions, suggesting
from mcp_exec_common.util.backoff import delay_after

log = logging.getLogger(__name__)
_MAX_MODEL: Final = 128
_SECONDS: Final = 10.0
"""Longest time of a report, which the answer waits for."""
_FIRST_DELAY: Final = 1.0
_LAST_DELAY: Final = 10.0
_MAX_USES: Final = 32
"""Most uses of tools in one answer; further ones are refused."""


@dataclass(kw_only=True)
class AgentTask:
    """Asks the model and does what it asks for."""

    provider: ModelProvider
    setup: TaskSetup
    budget: TaskBudget
    earlier: list[Block]
    """Messages of earlier tasks."""
    fenced_code: bool
    on_event: OnEvent
    sleep: Callable[[float], Awaitable[None]]

    async def run(self, messages: list[Block]) -> str:
        """Return the model's answer. `messages` begins with the task, and gets all further messages.

        Raises AgentError, and McpExecError if the gateway does not respond.
        """
        while True:
            reply = await self._ask(messages)
            if reply.content:
                messages.append({"role": "assistant", "content": reply.content})
            if reply.stop == "pause":
                continue
            if reply.stop not in ("end", "tool_use"):
                # also with uses of tools: the last one may be incomplete
                raise AgentError(f"the model stopped without an answer: {reply.stop}")
            if reply.tool_uses:
                messages.append({"role": "user", "content": await self._use_tools(reply.tool_uses)})
            elif result := await self._run_fenced(reply.text):
                messages.append({"role": "user", "content": result})
            elif reply.text.strip():
                return reply.text
            else:
                raise AgentError("the model gave an empty answer")

    async def _ask(self, messages: list[Block]) -> ModelReply:
        """Return the next answer. A request whose answer is cut off is sent again."""
        request = ModelRequest(
            system=self.setup.opening.system,
            messages=[*self.earlier, *messages],
            tools=self.setup.opening.definitions if self.provider.supports_tools else (),
            max_tokens=self.budget.begin_turn(),
        )
        failures, model = 0, self.provider.model
        while True:
            try:
                reply = await self.provider.reply(request, on_text=self._pass_text)
            except ModelError as error:
                failures += 1
                if not error.retryable or failures > self.budget.limits.cut_answers:
                    raise
                await self.on_event(TextDropped(reason=str(error)))
                await self.sleep(delay_after(failures, first=_FIRST_DELAY, last=_LAST_DELAY))
            else:
                if self.provider.model != model:
                    text = f"{self.provider.model} answers: {model} failed"
                    await self.on_event(AgentStep(kind="model", text=text, failed=True))
                self.budget.add(reply.tokens, model=self.provider.model)
                return reply

    async def _pass_text(self, text: str) -> None:
        await self.on_event(TextDelta(text=text))

    async def _use_tools(self, uses: list[Block]) -> list[Block]:
        """Use the tools one after the other, as the model ordered them."""
        results = [await self.setup.tools.work(use, on_event=self.on_event) for use in uses[:_MAX_USES]]
        for use in uses[_MAX_USES:]:
            text = f"at most {_MAX_USES} uses of tools are possible at once"
            results.append({"type": "tool_result", "tool_use_id": use["id"], "content": text, "is_error": True})
        return results

    async def _run_fenced(self, text: str) -> str | None:
        """Run the code of an answer's fenced blocks and return the message with its result, or None without code."""
        tools = self.setup.tools
        code = CodeMode.extract_code(text) if self.fenced_code and tools.code is not None else None
        if code is None or tools.code is None:
            return None
        outcome = await tools.run(tools.code, "execute_code", {"code": code}, on_event=self.on_event)
        return f"Result of the code:\n{outcome.text}"


_MAX_QUEUED: Final = 64


@suggesting
class Agent:
    """A conversation: `await Agent(client, AnthropicProvider(), tools=["github.*"]).run("How many issues are open?")`.

    The user, the context, the patterns of tools and all other options come from the application and never from the
    model. One task runs at a time.
    """

    def __init__(
        self,
        client: AsyncClient,
        provider: ModelProvider,
        *,
        mode: Mode = "code",
        limits: AgentLimits | None = None,
        rules: HybridRules | None = None,
        context: Mapping[str, Any] | None = None,
        on_approval: OnApproval | None = None,
        kill_switch: KillSwitch = False,
        rollout: str | None = None,
        unit: str | None = None,
        report: bool = False,
        prices: Mapping[str, TokenPrice] | None = None,
        instructions: str = "",
        fenced_code: bool | None = None,
        timeout_seconds: int = 30,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        **options: Unpack[ExecutionOptions],
    ) -> None:
        """Create a conversation; nothing is sent yet.

        Args:
            client: client of the gateway.
            provider: access to the model.
            mode: code, direct or hybrid.
            limits: limits of each task.
            rules: when a hybrid agent works by code.
            context: variables of all code; the model sees their names and types.
            on_approval: decides about tool calls that need an approval; by default somebody else does.
            kill_switch: forces direct calls; $MCP_EXEC_FORCE_DIRECT does so, too.
            rollout: rollout that assigns the mode; `mode` is used if it can't be asked.
            unit: unit of the rollout, by default the user.
            report: whether to report the usage of each task to the gateway.
            prices: prices of models by patterns of their names.
            instructions: text at the end of the system prompt.
            fenced_code: whether to run code in fenced blocks; by default only for models without tools.
            timeout_seconds: time limit of one block of code.
            sleep: waits between attempts to reach the model.
            options: options of all executions and direct calls, such as `tools`, `user` and `pool`.
        """
        if mode not in ("code", "direct", "hybrid"):
            raise ValueError(f"mode is {mode!r}; it must be code, direct or hybrid")
        unit = unit or options.get("user")
        if rollout is not None and not unit:
            raise ValueError("a rollout needs a unit or a user")
        self.conversation: Final = options.get("conversation") or f"agent-{uuid.uuid4().hex[:16]}"
        options["conversation"] = self.conversation
        self.usage: Final = ConversationUsage()
        self.trace: RunTrace | None = None
        """Trace of the newest task, also if it failed."""
        self.limits: Final = limits or AgentLimits()
        self.rules: Final = rules or HybridRules()
        self.history: Final = ConversationHistory(max_tokens=self.limits.history_tokens)
        self._client = client
        self._provider = provider
        self._options = options
        self._report = report
        self._prices = prices or {}
        self._fenced_code = not provider.supports_tools if fenced_code is None else fenced_code
        self._sleep = sleep
        self._rollout = RolloutUnit(client=client, rollout=rollout, unit=unit) if rollout and unit else None
        code_options = {**options, "context": context or {}, "timeout_seconds": timeout_seconds}
        self._selection = ModeSelection(
            mode=mode,
            rules=self.rules,
            kill_switch=kill_switch,
            rollout=self._rollout,
            code=CodeMode(client, on_approval=on_approval, **cast(RunOptions, code_options)),
            direct=DirectMode(client, on_approval=on_approval, **options),
            instructions=instructions,
            max_failures=self.limits.failures,
            shows_tools=provider.supports_tools,
        )
        self._busy = False

    async def run(
        self, task: str, *, expected: TaskProfile | None = None, on_event: OnEvent = ignore_event
    ) -> AgentAnswer:
        """Do a task and return the answer. `expected` is what the application knows about it, for the hybrid rules.

        Raises AgentError (LimitReached, ModelError), and McpExecError if the gateway does not
        respond. A task that fails is not part of the history; its usage counts.
        """
        if self._busy:
            raise AgentError("the conversation has a task already; wait for its end, or use another Agent")
        self._busy = True
        self.trace = trace = RunTrace(task=task, model=self._provider.model)
        budget = TaskBudget(limits=self.limits, prices=self._prices, model=self._provider.model)
        began = perf_counter()
        try:
            async with asyncio.timeout(self.limits.seconds):
                text = await self._work(task, expected, trace, budget, on_event)
            trace.succeeded = True
        except TimeoutError as error:
            raise LimitReached("time", f"the task took {self.limits.seconds:g} seconds") from error
        finally:
            self._busy = False
            trace.model = self._provider.model
            trace.turns, trace.tokens, trace.cost = budget.turns, budget.tokens, budget.cost
            trace.milliseconds = (perf_counter() - began) * 1000
            self.usage.add(trace)
            if self._report and trace.turns:
                await self._send_report(trace)
        return AgentAnswer(text=text, trace=trace)

    @streamed
    async def stream(
        self, task: str, *, expected: TaskProfile | None = None
    ) -> AsyncGenerator[AgentEvent | AgentAnswer, None]:
        """Yield the events of a task and at last its answer. Leaving the iteration cancels the task."""
        queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue(_MAX_QUEUED)

        async def work() -> AgentAnswer:
            try:
                return await self.run(task, expected=expected, on_event=queue.put)
            finally:
                await queue.put(None)

        running = asyncio.create_task(work())
        try:
            while (event := await queue.get()) is not None:
                yield event
            yield await running
        finally:
            if not running.done():
                running.cancel()
                while not running.done():  # its last events find no reader
                    with suppress(asyncio.QueueEmpty):
                        queue.get_nowait()
                    await asyncio.wait([running], timeout=0.01)
            with suppress(asyncio.CancelledError, Exception):
                running.exception()

    async def count_tokens(self, task: str) -> TokenCounts:
        """Return the input tokens of a task's first request, as the provider counts them, if it can.

        A rollout is not asked: the count is that of the conversation's own mode.
        """
        setup = await self._selection.prepare(task, None, self.history, assigns=False)
        messages = [*self.history.begin(setup.opening), setup.build_message(task)]
        return await self._provider.count_tokens(
            ModelRequest(system=setup.opening.system, messages=messages, tools=setup.opening.definitions)
        )

    async def _work(
        self, task: str, expected: TaskProfile | None, trace: RunTrace, budget: TaskBudget, on_event: OnEvent
    ) -> str:
        async def report(event: AgentEvent) -> None:
            if isinstance(event, AgentStep):
                trace.steps.append(event)
            await on_event(event)

        setup = await self._selection.prepare(task, expected, self.history)
        trace.mode, trace.reason = setup.choice.mode, setup.choice.reason
        await report(AgentStep(kind="mode", text=f"{setup.choice.mode} ({setup.choice.rule}): {setup.choice.reason}"))
        work = AgentTask(
            provider=self._provider,
            setup=setup,
            budget=budget,
            earlier=self.history.begin(setup.opening),
            fenced_code=self._fenced_code,
            on_event=report,
            sleep=self._sleep,
        )
        messages: list[Block] = [setup.build_message(task)]
        try:
            text = await work.run(messages)
        finally:
            trace.definition_tokens = estimate_definitions(setup.opening.definitions) * budget.turns
        self.history.add(messages, opening=setup.opening, servers=setup.servers)
        await report(AgentStep(kind="answer", text=text))
        return text

    async def _send_report(self, trace: RunTrace) -> None:
        """Report what a task used. The answer does not depend on it: a report that is not accepted is logged."""
        try:
            usage = NewUsageReport(
                id=uuid.uuid4().hex,
                model=trace.model[:_MAX_MODEL],
                mode=trace.mode,
                turns=trace.turns,
                input_tokens=trace.tokens.input,
                output_tokens=trace.tokens.output,
                cache_read_tokens=trace.tokens.cache_read,
                cache_write_tokens=trace.tokens.cache_write,
                definition_tokens=trace.definition_tokens,
                counted=trace.tokens.counted,
                success=trace.succeeded,
                latency_ms=round(trace.milliseconds),
                user=self._options.get("user"),
                use_case=self._options.get("use_case"),
                rollout=self._rollout.rollout if self._rollout else None,
                unit=self._rollout.unit if self._rollout else None,
            )
            async with asyncio.timeout(_SECONDS):
                await self._client.conversations.report_usage(self.conversation, usage)
        except (McpExecError, TimeoutError, ValidationError) as error:
            log.warning("the usage of conversation %s was not reported: %s", self.conversation, error)
