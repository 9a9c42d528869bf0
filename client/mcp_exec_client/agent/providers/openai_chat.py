"""Models of endpoints that speak OpenAI's chat API, by its SDK."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from openai import AsyncOpenAI, AsyncStream
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

from mcp_exec_client.agent.outcomes import ModelError
from mcp_exec_client.agent.providers.model import (
    Block,
    ModelReply,
    ModelRequest,
    PassText,
    StopReason,
    TokenCounts,
    estimate_input,
    estimate_reply,
)
from mcp_exec_client.agent.providers.openai_sdk import (
    OpenAISdkProvider,
    StreamedAnswer,
    read_arguments,
    write_arguments,
)
from mcp_exec_client.model_options import Effort

_STOPS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_MAX_CALLS: Final = 128
"""Tool calls of one answer, the API's limit of parallel calls."""


class OpenAIProvider(OpenAISdkProvider):
    """A model of an OpenAI-compatible endpoint."""

    def __init__(
        self,
        model: str,
        *,
        sdk: AsyncOpenAI | None = None,
        supports_tools: bool = True,
        limit_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens",
        effort: Effort | None = None,
    ) -> None:
        """Create access to a model; nothing is sent yet.

        Args:
            model: name of the model.
            sdk: client of the SDK, by default one from the variables.
            supports_tools: whether the model can use tools; if not, code is taken from fenced blocks.
            limit_field: field with the most tokens of an answer; older endpoints know only `max_tokens`.
            effort: how much a model thinks; by default as the model does by itself.
        """
        super().__init__(model, sdk=sdk, supports_tools=supports_tools)
        self._limit_field = limit_field
        self._settings = {"reasoning_effort": effort} if effort else {}

    async def _open(self, request: ModelRequest) -> tuple[AsyncStream[Any], StreamedAnswer]:
        return await self._sdk.chat.completions.create(**self._build(request)), _Answer()

    def _build(self, request: ModelRequest) -> dict[str, Any]:
        messages = [each for message in request.messages for each in _translate_message(message)]
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        given: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            self._limit_field: request.max_tokens,
            **self._settings,
        }
        return given | ({"tools": [_translate_tool(tool) for tool in request.tools]} if request.tools else {})


@dataclass(kw_only=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""

    def to_block(self) -> Block:
        return {"type": "tool_use", "id": self.id, "name": self.name, "input": read_arguments(self.arguments)}


@dataclass(kw_only=True)
class _Answer(StreamedAnswer):
    """The parts of an answer as they arrive."""

    text: list[str] = field(default_factory=list)
    calls: dict[int, _Call] = field(default_factory=dict)
    stop: str | None = None
    usage: CompletionUsage | None = None

    async def read(self, chunks: AsyncIterator[ChatCompletionChunk], on_text: PassText) -> None:
        """Read all parts. Raises ModelError if there are too many."""
        async for chunk in chunks:
            self.usage = chunk.usage or self.usage
            for choice in chunk.choices[:1]:
                self.stop = choice.finish_reason or self.stop
                for part in choice.delta.tool_calls or ():
                    self._add_call(part)
                if choice.delta.content:
                    self.count(choice.delta.content)
                    self.text.append(choice.delta.content)
                    await on_text(choice.delta.content)

    def build(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer. Raises ModelError."""
        if self.stop is None:
            raise ModelError("the model's answer was cut off: the stream ended before the message", retryable=True)
        text = "".join(self.text)
        content: list[Block] = [{"type": "text", "text": text}] if text else []
        content += [call.to_block() for _, call in sorted(self.calls.items())]
        stop = _STOPS.get(self.stop)
        if stop is None:
            raise ModelError(f"the model stopped for an unknown reason: {self.stop[:100]}")
        return ModelReply(content=content, stop=stop, tokens=self._read_tokens(request, content))

    def _add_call(self, part: ChoiceDeltaToolCall) -> None:
        if part.index not in self.calls and len(self.calls) >= _MAX_CALLS:
            raise ModelError(f"the model's answer has more than {_MAX_CALLS} tool calls")
        call = self.calls.setdefault(part.index, _Call())
        call.id = part.id or call.id
        if part.function:
            self.count(part.function.arguments or "")
            call.name = call.name or part.function.name or ""
            call.arguments += part.function.arguments or ""

    def _read_tokens(self, request: ModelRequest, content: list[Block]) -> TokenCounts:
        if self.usage is None:
            return TokenCounts(input=estimate_input(request), output=estimate_reply(content), counted="estimate")
        details = self.usage.prompt_tokens_details
        cached = min((details and details.cached_tokens) or 0, self.usage.prompt_tokens)
        return TokenCounts(
            input=self.usage.prompt_tokens - cached, output=self.usage.completion_tokens, cache_read=cached
        )


def _translate_tool(tool: Block) -> Block:
    function = {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def _translate_message(message: Block) -> Iterator[Block]:
    """Yield the messages of the chat API that a message of the Messages API becomes."""
    content = message["content"]
    if isinstance(content, str):
        yield {"role": message["role"], "content": content}
        return
    text = "".join(block["text"] for block in content if block["type"] == "text")
    if message["role"] == "assistant":
        calls = [_translate_use(block) for block in content if block["type"] == "tool_use"]
        yield {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
        return
    for block in content:
        if block["type"] == "tool_result":
            prefix = "Error: " if block.get("is_error") else ""
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": prefix + str(block["content"])}
    if text:
        yield {"role": "user", "content": text}


def _translate_use(block: Block) -> Block:
    function = {"name": block["name"], "arguments": write_arguments(block["input"])}
    return {"id": block["id"], "type": "function", "function": function}
