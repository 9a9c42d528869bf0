"""One task of a conversation: turns of the model and its uses of tools, up to the answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from mcp_exec_client.agent.code_mode import CodeMode
from mcp_exec_client.agent.modes import TaskSetup
from mcp_exec_client.agent.outcomes import (
    AgentError,
    AgentStep,
    ModelError,
    OnEvent,
    TaskBudget,
    TextDelta,
    TextDropped,
)
from mcp_exec_client.agent.providers.model import Block, ModelProvider, ModelReply, ModelRequest, StopReason
from mcp_exec_client.agent.providers.refusals import LATER, REFUSED
from mcp_exec_client.agent.written_calls import read_written_calls
from mcp_exec_common.util.backoff import delay_after

_FIRST_DELAY: Final = 1.0
_LAST_DELAY: Final = 10.0
_MAX_USES: Final = 32
"""Most uses of tools in one answer; further ones are refused."""
_ENDS: Final[dict[StopReason, str]] = {
    "max_tokens": "its answer, thoughts included, may have {limit} tokens, or fewer if the model takes no more: "
    "--answer-tokens, or AgentLimits(answer_tokens=...), allows more",
    "context_full": "the conversation is larger than the model's context: begin a new one, or let code print less",
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
            if reply.stop == "refusal":
                said = f": {reply.text.strip()}" if reply.text.strip() else ""
                raise AgentError(f"the model refused{said}; {REFUSED}")
            if reply.stop not in ("end", "tool_use"):
                # also with uses of tools: the last one may be incomplete
                why = _ENDS.get(reply.stop, "").format(limit=self.budget.limits.answer_tokens)
                raise AgentError(f"the model stopped without an answer: {reply.stop}" + (f"; {why}" if why else ""))
            if reply.tool_uses:
                messages.append({"role": "user", "content": await self._use_tools(reply.tool_uses)})
            elif result := await self._run_fenced(reply.text) or await self._use_written(reply.text):
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
            notify=self._note,
        )
        failures, model = 0, self.provider.model
        while True:
            try:
                reply = await self.provider.reply(request, on_text=self._pass_text)
            except ModelError as error:
                failures += 1
                if not error.retryable:
                    raise
                if failures > self.budget.limits.cut_answers:
                    text = f"{error}, after {failures} attempts; check the network and its proxy, {LATER}"
                    raise ModelError(text) from error
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

    async def _note(self, line: str) -> None:
        await self.on_event(AgentStep(kind="model", text=line))

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

    async def _use_written(self, text: str) -> str | None:
        """Do the uses of tools that an answer consists of and return the message with their results, or None."""
        definitions = self.setup.opening.definitions
        uses = read_written_calls(text, {str(tool["name"]) for tool in definitions})
        results = await self._use_tools(uses)
        lines = [f"Result of {use['name']}:\n{result['content']}" for use, result in zip(uses, results, strict=True)]
        return "\n".join(lines) or None
