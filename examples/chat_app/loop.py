"""The application's own loop on Anthropic's SDK. `use_code_execution` is all that changes."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from anthropic import AsyncAnthropic
from mcp_exec_client import AsyncClient
from mcp_exec_client.agent import AgentEvent, AgentStep, CodeMode, RunEvent
from mcp_exec_client.events import TextEvent

from chat_app.direct_tools import DEFINITIONS, SYSTEM, call_tool

MAX_TURNS = 12
MAX_ANSWER_TOKENS = 32_000
"""Of one answer, with the thoughts before it."""
MAX_SHOWN = 4000
"""Most characters of code and results on the page."""

Send = Callable[[str, dict[str, Any]], Awaitable[None]]


async def send_nothing(kind: str, fields: dict[str, Any]) -> None:
    """Do nothing."""


class LoopFailed(Exception):
    """An answer that is not possible. The text is shown on the page."""


class ChatLoop:
    """Turns of the model and its uses of tools, up to the answer."""

    def __init__(
        self,
        *,
        anthropic: AsyncAnthropic,
        model: str,
        use_code_execution: bool = False,
        client: AsyncClient | None = None,
        user: str = "",
        conversation: str = "",
        is_offline: bool = False,
    ) -> None:
        self.history: list[dict[str, Any]] = []
        self._anthropic = anthropic
        self._model = model
        self._counted = "estimate" if is_offline else "provider"
        self._send: Send = send_nothing
        self._system = ""
        self._code: CodeMode | None = None
        if use_code_execution:
            if client is None:
                raise LoopFailed("there is no gateway: start the service with MCP_EXEC_GATEWAY and MCP_EXEC_API_KEY")
            # user and conversation come from the application and never from the model
            self._code = CodeMode(
                client, tools=["shop.*"], user=user, conversation=conversation, on_event=self._show_event
            )

    async def answer(self, message: str, *, send: Send) -> None:
        """Answer a message, and send text, steps and tokens as they come. A failed answer leaves no history."""
        self._send = send
        if not self._system:  # it never changes in a conversation: the model's thoughts are bound to it
            self._system = f"{SYSTEM}\n{await self._code.system_prompt()}" if self._code else SYSTEM
        tools = self._code.tools() if self._code else DEFINITIONS
        messages = [*self.history, {"role": "user", "content": message}]
        tokens: dict[str, Any] = {"input": 0, "output": 0, "counted": self._counted}
        for _ in range(MAX_TURNS):
            reply = await self._ask(system=self._system, tools=tools, messages=messages)
            tokens["input"] += count_input(reply.usage)
            tokens["output"] += reply.usage.output_tokens
            await send("tokens", tokens)
            messages.append({"role": "assistant", "content": [dump(block) for block in reply.content]})
            if reply.stop_reason == "end_turn":
                self.history = messages
                return
            if reply.stop_reason != "tool_use":
                raise LoopFailed(f"the model stopped without an answer: {reply.stop_reason}")
            uses = [dump(block) for block in reply.content if block.type == "tool_use"]
            messages.append({"role": "user", "content": [await self._use(each) for each in uses]})
        raise LoopFailed(f"the model gave no answer within {MAX_TURNS} turns")

    async def _ask(self, **request: Any) -> Any:
        """Return the model's next message, whose text is sent as it comes."""
        async with self._anthropic.messages.stream(
            model=self._model, max_tokens=MAX_ANSWER_TOKENS, **request
        ) as stream:
            async for text in stream.text_stream:
                await self._send("text", {"text": text})
            return await stream.get_final_message()

    async def _use(self, use: dict[str, Any]) -> dict[str, Any]:
        if self._code:
            return await self._code.handle(use)
        await self._show("call", f"{use['name']} {json.dumps(use['input'])}")
        result = await call_tool(use)
        await self._show("results", result["content"], failed=result.get("is_error", False))
        return result

    async def _show_event(self, event: AgentEvent) -> None:
        """Show what happens while code runs."""
        if isinstance(event, AgentStep):
            await self._show(event.kind, event.text, failed=event.failed)
        elif isinstance(event, RunEvent) and isinstance(event.event, TextEvent):
            await self._show("output", event.event.text)

    async def _show(self, kind: str, text: str, *, failed: bool = False) -> None:
        await self._send("step", {"kind": kind, "text": text[:MAX_SHOWN], "length": len(text), "failed": failed})


def dump(block: Any) -> dict[str, Any]:
    """Return a content block as it is sent back to the model."""
    if block.type == "text":
        return {"type": "text", "text": block.text}
    if block.type == "tool_use":
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
    content: dict[str, Any] = block.model_dump(exclude_none=True)
    return content


def count_input(usage: Any) -> int:
    """Return all input tokens, cached ones included."""
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
