"""One task of a conversation: turns of the model and its uses of tools, up to the answer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from mcp_exec_client.agent.budget import TaskBudget
from mcp_exec_client.agent.code_mode import CodeMode
from mcp_exec_client.agent.modes import TaskSetup
from mcp_exec_client.agent.outcomes import (
    AgentError,
    AgentStep,
    ModelError,
    OnEvent,
    TextDelta,
    TextDropped,
    Waiting,
)
from mcp_exec_client.agent.providers.endpoint import find_endpoint
from mcp_exec_client.agent.providers.model import (
    Block,
    ModelProvider,
    ModelReply,
    ModelRequest,
    StopReason,
    make_encodable,
)
from mcp_exec_client.agent.providers.refusals import LATER, REFUSED, TOO_LONG
from mcp_exec_client.agent.written_calls import read_written_calls
from mcp_exec_common.util.backoff import delay_after

_FIRST_DELAY: Final = 1.0
_LAST_DELAY: Final = 10.0
SILENCE_SECONDS: Final = 10.0
"""Time without a word of the model until an event says so."""
EMPTY: Final = "the model gave an empty answer"
CODE_TOOL: Final = "execute_code"
_MAX_USES: Final = 32
"""Most uses of tools in one answer; further ones are refused."""
_ENDS: Final[dict[StopReason, str]] = {
    "max_tokens": "its answer, thoughts included, may have {limit} tokens, or fewer if the model takes no more: "
    "--answer-tokens, or AgentLimits(answer_tokens=...), allows more",
    "context_full": f"the conversation is larger than the model's context: {TOO_LONG}",
}
"""Why an answer is of no use, and what to do."""


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
    silent: bool = field(default=True, init=False)
    """Whether no text of the present answer has come."""

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
            said = reply.text.strip()
            if reply.stop == "refusal":
                raise AgentError(f"the model refused{': ' * bool(said)}{said}; {REFUSED}")
            if reply.stop == "filtered":
                after = f" after: {said}" if said else ""
                raise AgentError(f"the API's content filter ended the answer{after}; {REFUSED}")
            if reply.stop not in ("end", "tool_use"):
                # also with uses of tools: the last one may be incomplete
                why = _ENDS.get(reply.stop, "").format(limit=self.budget.limits.answer_tokens)
                raise AgentError(f"the model stopped without an answer: {reply.stop}" + (f"; {why}" if why else ""))
            if reply.tool_uses:
                messages.append({"role": "user", "content": await self._use_tools(reply.tool_uses)})
            elif result := await self._run_fenced(reply.text) or await self._use_written(reply.text):
                messages.append({"role": "user", "content": result})
            else:
                return reply.text

    async def _ask(self, messages: list[Block]) -> ModelReply:
        """Return the next answer. A request whose answer is cut off is sent again."""
        request = ModelRequest(
            system=self.setup.opening.system,
            messages=[*self.earlier, *messages],
            tools=self.setup.opening.definitions if self.provider.supports_tools else (),
            max_tokens=self.budget.begin_turn(),
            notify=self._note,
        )
        failures, model = 0, self.provider.model
        while True:
            try:
                reply = await self._wait(request)
                self.budget.add(reply.tokens, model=self.provider.model)
                if reply.stop == "end" and not reply.text.strip() and not reply.tool_uses:
                    raise ModelError(EMPTY, retryable=True)
            except ModelError as error:
                failures += 1
                if not error.retryable:
                    raise
                if failures > self.budget.limits.cut_answers:
                    advice = REFUSED if str(error) == EMPTY else f"check the network and its proxy, {LATER}"
                    raise ModelError(f"{error}, after {failures} attempts; {advice}") from error
                await self.on_event(TextDropped(reason=str(error)))
                await self.sleep(delay_after(failures, first=_FIRST_DELAY, last=_LAST_DELAY))
            else:
                if self.provider.model != model:
                    text = f"{self.provider.model} answers: {model} failed"
                    await self.on_event(AgentStep(kind="model", text=text, failed=True))
                return reply

    async def _wait(self, request: ModelRequest) -> ModelReply:
        """Return the model's answer. If nothing of it comes for a while, one event says so."""
        self.silent = True
        self.budget.begin(f"for an answer of {find_endpoint(self.provider)}")
        waiting = asyncio.create_task(self._note_silence())
        try:
            reply = await self.provider.reply(request, on_text=self._pass_text)
            return replace(reply, content=make_encodable(reply.content))
        finally:
            waiting.cancel()

    async def _note_silence(self) -> None:
        await asyncio.sleep(SILENCE_SECONDS)
        if self.silent:
            reason = f"no answer of {find_endpoint(self.provider)} yet, after {SILENCE_SECONDS:g} seconds"
            await self.on_event(Waiting(reason=reason))

    async def _pass_text(self, text: str) -> None:
        self.silent = False
        await self.on_event(TextDelta(text=text))

    async def _note(self, line: str) -> None:
        await self.on_event(AgentStep(kind="model", text=line))

    async def _use_tools(self, uses: list[Block]) -> list[Block]:
        """Use the tools one after the other, as the model ordered them."""
        tools = self.setup.tools
        if any(use["name"] == CODE_TOOL for use in uses):
            tools.check_attempts()
        results = []
        for use in uses[:_MAX_USES]:
            self.budget.begin(f"in {use['name'][:100]}")
            results.append(await tools.work(use, on_event=self.on_event))
        for use in uses[_MAX_USES:]:
            text = f"at most {_MAX_USES} uses of tools are possible at once"
            results.append({"type": "tool_result", "tool_use_id": use["id"], "content": text, "is_error": True})
        return results

    async def _run_fenced(self, text: str) -> str | None:
        """Run the code of an answer's fenced blocks and return the message with its result, or None without code."""
        tools = self.setup.tools
        if tools.code is None or not self.fenced_code:
            return None
        code = CodeMode.extract_code(text, language=tools.code.language)
        if code is None:
            return None
        tools.check_attempts()
        self.budget.begin(f"in {CODE_TOOL}")
        outcome = await tools.run(tools.code, CODE_TOOL, {"code": code}, on_event=self.on_event)
        return f"Result of the code:\n{outcome.text}"

    async def _use_written(self, text: str) -> str | None:
        """Do the uses of tools that an answer consists of and return the message with their results, or None."""
        definitions = self.setup.opening.definitions
        uses = read_written_calls(text, {str(tool["name"]) for tool in definitions})
        results = await self._use_tools(uses)
        lines = [f"Result of {use['name']}:\n{result['content']}" for use, result in zip(uses, results, strict=True)]
        return "\n".join(lines) or None
