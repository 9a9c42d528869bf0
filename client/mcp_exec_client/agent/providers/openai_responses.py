"""Models of OpenAI's Responses API, by its SDK: also those that the chat API does not have."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from openai import AsyncOpenAI, AsyncStream
from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent

from mcp_exec_client.agent.outcomes import ModelError
from mcp_exec_client.agent.providers.endpoint import AnswerCut
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

_REASONING: Final = "openai_reasoning"
"""Type of the block that has a reasoning item, which goes back to the API as it came."""
_MAX_ITEMS: Final = 256
"""Items of one answer."""
_STOPS: Final[dict[str | None, StopReason]] = {"max_output_tokens": "max_tokens", "content_filter": "filtered"}


class OpenAIResponsesProvider(OpenAISdkProvider):
    """A model of the Responses API. The API stores nothing: each request has the whole conversation."""

    def __init__(
        self,
        model: str,
        *,
        sdk: AsyncOpenAI | None = None,
        effort: Effort | None = None,
        temperature: float | None = None,
    ) -> None:
        """Create access to a model; nothing is sent yet.

        Args:
            model: name of the model.
            sdk: client of the SDK, by default one from the variables $OPENAI_API_KEY and $OPENAI_BASE_URL.
            effort: how much a model thinks; by default as the model does by itself.
            temperature: randomness of the answers, not sent to a model that refuses it; by default as the model has it.
        """
        super().__init__(model, sdk=sdk, temperature=temperature)
        self._settings: dict[str, Any] = {"reasoning": {"effort": effort}} if effort else {}

    async def _open(self, request: ModelRequest) -> tuple[AsyncStream[Any], StreamedAnswer]:
        return await self._once.responses.create(**self._build(request)), _Answer()

    def _build(self, request: ModelRequest) -> dict[str, Any]:
        given: dict[str, Any] = {
            "model": self.model,
            "input": [item for message in request.messages for item in _list_items(message)],
            "max_output_tokens": self._limit(request),
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            **self._settings,
        }
        given |= {} if self._temperature is None else {"temperature": self._temperature}
        given |= {"instructions": request.system} if request.system else {}
        return given | ({"tools": [_translate_tool(tool) for tool in request.tools]} if request.tools else {})


@dataclass(kw_only=True)
class _Answer(StreamedAnswer):
    """The items of an answer as they arrive."""

    items: list[ResponseOutputItem] = field(default_factory=list)
    response: Response | None = None

    async def read(self, events: AsyncIterator[ResponseStreamEvent], on_text: PassText) -> None:
        """Read all events. Raises ModelError if the API fails, or if there are too many."""
        async for event in events:
            if event.type in ("response.output_text.delta", "response.refusal.delta"):
                self.count(event.delta)
                await on_text(event.delta)
            elif event.type == "response.function_call_arguments.delta":
                self.count(event.delta)
            elif event.type == "response.output_item.done":
                self.items.append(event.item)
                if len(self.items) > _MAX_ITEMS:
                    raise ModelError(f"the model's answer has more than {_MAX_ITEMS} items")
            elif event.type in ("response.completed", "response.incomplete"):
                self.response = event.response
            elif event.type == "response.failed":
                why = event.response.error
                raise ModelError(f"the model failed: {why.message if why else 'without a reason'}", retryable=True)

    async def read_whole(self, answer: Block, on_text: PassText) -> None:
        """Read an answer that came as one document."""
        self.items = Response.construct(**{"output": answer["output"]}).output[:_MAX_ITEMS]
        self.response = Response.construct(**answer)
        for text in [block["text"] for item in self.items for block in _list_blocks(item) if block["type"] == "text"]:
            self.count(text)
            await on_text(text)

    def build(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer. Raises ModelError and AnswerCut."""
        if self.response is None:
            raise AnswerCut("the stream ended before the response")
        content = [block for item in self.items for block in _list_blocks(item)]
        if any(part.type == "refusal" for item in self.items if item.type == "message" for part in item.content):
            stop: StopReason = "refusal"
        elif self.response.status != "incomplete":
            has_uses = any(block["type"] == "tool_use" for block in content)
            stop = "tool_use" if has_uses else "end"
        elif (reason := getattr(self.response.incomplete_details, "reason", None)) in _STOPS:
            stop = _STOPS[reason]
        else:
            raise ModelError(f"the model stopped for an unknown reason: {reason}")
        return ModelReply(content=content, stop=stop, tokens=self._read_tokens(request, content))

    def _read_tokens(self, request: ModelRequest, content: list[Block]) -> TokenCounts:
        usage = self.response.usage if self.response else None
        if usage is None:
            return TokenCounts(input=estimate_input(request), output=estimate_reply(content), counted="estimate")
        cached = min(usage.input_tokens_details.cached_tokens or 0, usage.input_tokens)
        return TokenCounts(input=usage.input_tokens - cached, output=usage.output_tokens, cache_read=cached)


def _list_blocks(item: ResponseOutputItem) -> Iterator[Block]:
    if item.type == "message":
        text = "".join(part.text if part.type == "output_text" else part.refusal for part in item.content)
        yield {"type": "text", "text": text}
    elif item.type == "function_call":
        yield {"type": "tool_use", "id": item.call_id, "name": item.name, "input": read_arguments(item.arguments)}
    elif item.type == "reasoning":
        yield {"type": _REASONING, "item": item.to_dict(mode="json")}


def _list_items(message: Block) -> Iterator[Block]:
    """Yield the items of the Responses API that a message of the Messages API becomes."""
    content = message["content"]
    if isinstance(content, str):
        yield {"role": message["role"], "content": content}
        return
    for block in content:
        if block["type"] == "text":
            yield {"role": message["role"], "content": block["text"]}
        elif block["type"] == "tool_use":
            call = {"call_id": block["id"], "name": block["name"], "arguments": write_arguments(block["input"])}
            yield {"type": "function_call", **call}
        elif block["type"] == "tool_result":
            output = ("Error: " if block.get("is_error") else "") + str(block["content"])
            yield {"type": "function_call_output", "call_id": block["tool_use_id"], "output": output}
        elif block["type"] == _REASONING:
            yield block["item"]


def _translate_tool(tool: Block) -> Block:
    definition = {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}
    return {"type": "function", "strict": False, **definition}
