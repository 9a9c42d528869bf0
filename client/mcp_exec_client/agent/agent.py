"""A complete conversation with a model that works by code, by direct calls, or by both.

`AgentTask` does one task: turns of the model and its uses of tools, up to the answer.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any, Final, Unpack, cast

from pydantic import ValidationError

from mcp_exec_api.wire.records import NewUsageReport
from mcp_exec_client.agent.agent_task import AgentTask
from mcp_exec_client.agent.approvals import OnApproval
from mcp_exec_client.agent.budget import AgentLimits, TaskBudget, TokenPrice
from mcp_exec_client.agent.code_mode import CodeMode
from mcp_exec_client.agent.conversation import ConversationHistory
from mcp_exec_client.agent.direct_mode import DirectMode
from mcp_exec_client.agent.hybrid_rules import HybridRules, TaskProfile
from mcp_exec_client.agent.modes import KillSwitch, ModeSelection, RolloutUnit, estimate_definitions
from mcp_exec_client.agent.outcomes import (
    AgentAnswer,
    AgentError,
    AgentEvent,
    AgentStep,
    ConversationUsage,
    LimitReached,
    Mode,
    OnEvent,
    RunTrace,
    ToolsRefused,
    ignore_event,
)
from mcp_exec_client.agent.providers.fallback import write_as_text
from mcp_exec_client.agent.providers.model import (
    Block,
    ModelProvider,
    ModelRequest,
    TokenCounts,
    make_encodable,
)
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import McpExecError
from mcp_exec_client.event_stream import streamed
from mcp_exec_client.options import ExecutionOptions, RunOptions, suggesting

log = logging.getLogger(__name__)
_MAX_MODEL: Final = 128
_SECONDS: Final = 10.0
"""Longest time of a report, which the answer waits for."""
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
        self._fenced_code = fenced_code
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
        if not task.strip():
            raise AgentError("the task is empty: say what the model has to do")
        task = make_encodable(task)
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
            raise LimitReached("time", budget.describe_time()) from error
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

        async def begin(*, assigns: bool) -> AgentTask:
            setup = await self._selection.prepare(task, expected, self.history, assigns=assigns)
            choice = setup.choice
            trace.mode, trace.reason = choice.mode, choice.reason
            await report(AgentStep(kind="mode", text=f"{choice.mode} ({choice.rule}): {choice.reason}"))
            return AgentTask(
                provider=self._provider,
                setup=setup,
                budget=budget,
                earlier=self.history.begin(setup.opening),
                fenced_code=not self._selection.shows_tools if self._fenced_code is None else self._fenced_code,
                on_event=report,
                sleep=self._sleep,
            )

        work = await begin(assigns=True)
        messages: list[Block] = [work.setup.build_message(task)]
        try:
            try:
                text = await work.run(messages)
            except ToolsRefused as error:
                await report(AgentStep(kind="model", text=str(error)))
                self._selection.shows_tools = False
                self.history.restart()
                work = await begin(assigns=False)
                messages[:] = [work.setup.build_message(task), *(write_as_text(each) for each in messages[1:])]
                text = await work.run(messages)
        finally:
            trace.definition_tokens = estimate_definitions(work.setup.opening.definitions) * budget.turns
        setup = work.setup
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
