"""One task: turns of the model and its uses of tools, up to the answer."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.wire.records import NewUsageReport
from mcp_exec_client.agent.mode_selection import TaskSetup
from mcp_exec_client.agent.modes import RolloutUnit
from mcp_exec_client.agent.outcomes import AgentError, ModelError, OnEvent, RunTrace, TaskBudget, TextDelta, TextDropped
from mcp_exec_client.agent.providers.model import Block, ModelProvider, ModelReply, ModelRequest
from mcp_exec_client.agent.toolsets.code_mode import CodeMode
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import McpExecError
from mcp_exec_common.util.backoff import delay_after

log = logging.getLogger(__name__)
_MAX_MODEL: Final = 128
_SECONDS: Final = 10.0
"""Longest time of a report, which the answer waits for."""
_FIRST_DELAY: Final = 1.0
_LAST_DELAY: Final = 10.0
_MAX_USES: Final = 32
"""Most uses of tools in one answer; further ones are refused."""


async def report_task(
    client: AsyncClient,
    conversation: str,
    trace: RunTrace,
    *,
    user: str | None,
    use_case: str | None,
    rollout: RolloutUnit | None,
) -> None:
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
            user=user,
            use_case=use_case,
            rollout=rollout.rollout if rollout else None,
            unit=rollout.unit if rollout else None,
        )
        async with asyncio.timeout(_SECONDS):
            await client.conversations.report_usage(conversation, usage)
    except (McpExecError, TimeoutError, ValidationError) as error:
        log.warning("the usage of conversation %s was not reported: %s", conversation, error)


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
            system=self.setup.system,
            messages=[*self.earlier, *messages],
            tools=self.setup.tools.definitions if self.provider.supports_tools else (),
            max_tokens=self.budget.begin_turn(),
        )
        failures = 0
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
                self.budget.add(reply.tokens)
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
