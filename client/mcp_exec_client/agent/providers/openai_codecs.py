"""The chat API and the Responses API of OpenAI: the form of their requests, and their answers as they arrive."""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent

from mcp_exec_client.agent.outcomes import ModelError
from mcp_exec_client.agent.providers.endpoint import AnswerCut
from mcp_exec_client.agent.providers.model import (
    MAX_ANSWER_CHARACTERS,
    UNREADABLE,
    Block,
    ModelReply,
    ModelRequest,
    PassText,
    StopReason,
    TokenCounts,
    estimate_input,
    estimate_reply,
)

_STOPS: Final[dict[str | None, StopReason]] = {
    "stop": "end",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "content_filter": "filtered",
    "refusal": "refusal",
}
"""Meaning of both APIs' reasons."""
_MAX_CALLS: Final = 128
"""Tool calls of one answer, the chat API's limit of parallel calls."""
_MAX_ITEMS: Final = 256
"""Items of one answer of the Responses API."""
_REASONING: Final = "openai_reasoning"
"""Type of the block that has a reasoning item, which goes back to the Responses API as it came."""


def encode_chat(request: ModelRequest) -> dict[str, Any]:
    """Return conversation and tools of a request as the chat API has them."""
    system = [{"role": "system", "content": request.system}] if request.system else []
    tools = [{"type": "function", "function": _define(tool)} for tool in request.tools]
    messages = [*system, *_encode(request, _list_chat_messages)]
    return {"messages": messages, **({"tools": tools} if tools else {})}


def encode_responses(request: ModelRequest) -> dict[str, Any]:
    """Return conversation and tools of a request as the Responses API has them."""
    given: dict[str, Any] = {"input": list(_encode(request, _list_items))}
    tools = [{"type": "function", "strict": False, **_define(tool)} for tool in request.tools]
    given |= {"instructions": request.system} if request.system else {}
    return given | ({"tools": tools} if tools else {})


class Answer(ABC):
    """The parts of an answer as they arrive."""

    characters: int = 0
    reason: str | None = None
    """Why the model stopped; None until the answer is complete."""
    tokens: TokenCounts | None = None
    """As the API counted them, if it did."""

    async def read(self, events: AsyncIterator[Any], on_text: PassText) -> None:
        """Read all events. Raises ModelError if the API fails, or if there are too many."""
        async for event in events:
            await self._take(event, on_text)

    @abstractmethod
    async def _take(self, event: Any, on_text: PassText) -> None:
        """Read one event. Raises ModelError if the API fails, or if there are too many."""

    @abstractmethod
    async def read_whole(self, answer: Block, on_text: PassText) -> None:
        """Read an answer that came as one document. Raises ModelError, and other errors if it is none."""

    @abstractmethod
    def _list_content(self) -> Iterator[Block]:
        """Yield the blocks of the Messages API that the answer becomes."""

    def build(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer. Raises ModelError and AnswerCut."""
        if self.reason is None:
            raise AnswerCut("the stream ended before the answer was complete")
        if (stop := _STOPS.get(self.reason)) is None:
            raise ModelError(f"the model stopped for an unknown reason: {self.reason[:100]}")
        content = list(self._list_content())
        tokens = self.tokens or TokenCounts(
            input=estimate_input(request), output=estimate_reply(content), counted="estimate"
        )
        return ModelReply(content=content, stop=stop, tokens=tokens)

    async def _pass_text(self, text: str, on_text: PassText) -> None:
        """Count a part of the text and pass it on. Raises ModelError if there are too many characters."""
        self._count(text)
        await on_text(text)

    def _count(self, text: str) -> None:
        """Add a part's characters. Raises ModelError if there are too many."""
        self.characters += len(text)
        if self.characters > MAX_ANSWER_CHARACTERS:
            raise ModelError(f"the model's answer has more than {MAX_ANSWER_CHARACTERS} characters")


@dataclass(kw_only=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""

    def ends_before(self, part: ChoiceDeltaToolCall) -> bool:
        """Return whether a part with the same index begins another call, as some servers send parallel calls.

        Earlier releases of vLLM give each part of a call an id of its own, but only the first one a name.
        """
        if not self.name or part.function is None or not part.function.name:
            return False
        return part.id != self.id if part.id else self.arguments.endswith("}")


@dataclass(kw_only=True)
class ChatAnswer(Answer):
    """An answer of the chat API. One that came as a document is a stream with one part."""

    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    """Text of a model that refuses."""
    calls: list[_Call] = field(default_factory=list)
    newest: dict[int, _Call] = field(default_factory=dict)
    """The call that further parts with an index belong to."""

    async def _take(self, event: ChatCompletionChunk, on_text: PassText) -> None:
        if used := event.usage:
            self.tokens = _count_tokens(used.prompt_tokens, used.completion_tokens, used.prompt_tokens_details)
        for choice in event.choices[:1]:
            for part in choice.delta.tool_calls or ():
                self._add_call(part)
            for found, parts in ((choice.delta.content, self.text), (choice.delta.refusal, self.refusal)):
                if found:
                    parts.append(found)
                    await self._pass_text(found, on_text)
            if reason := choice.finish_reason or self.reason:
                self.reason = "refusal" if self.refusal else reason

    async def read_whole(self, answer: Block, on_text: PassText) -> None:
        """Read an answer that came as one document. Raises errors if it is none."""
        choice = answer["choices"][0]
        calls = [{"index": index, **call} for index, call in enumerate(choice["message"].get("tool_calls") or ())]
        given = {"index": 0, "finish_reason": choice["finish_reason"] or "stop"}
        parts = [{**given, "delta": {**choice["message"], "tool_calls": calls}}]
        await self._take(ChatCompletionChunk.construct(**{**answer, "choices": parts}), on_text)

    def _list_content(self) -> Iterator[Block]:
        if text := "".join([*self.text, *self.refusal]):
            yield {"type": "text", "text": text}
        for number, call in enumerate(self.calls):
            yield _build_use(call.id or f"call_{number}", call.name, call.arguments)

    def _add_call(self, part: ChoiceDeltaToolCall) -> None:
        call = self.newest.get(part.index)
        if call is None or call.ends_before(part):
            if len(self.calls) >= _MAX_CALLS:
                raise ModelError(f"the model's answer has more than {_MAX_CALLS} tool calls")
            call = self.newest[part.index] = _Call()
            self.calls.append(call)
        call.id = call.id or part.id or ""
        if part.function:
            self._count(part.function.arguments or "")
            call.name = call.name or part.function.name or ""
            call.arguments += part.function.arguments or ""


@dataclass(kw_only=True)
class ResponsesAnswer(Answer):
    """An answer of the Responses API."""

    items: list[ResponseOutputItem] = field(default_factory=list)

    async def _take(self, event: ResponseStreamEvent, on_text: PassText) -> None:
        if event.type in ("response.output_text.delta", "response.refusal.delta"):
            await self._pass_text(event.delta, on_text)
        elif event.type == "response.function_call_arguments.delta":
            self._count(event.delta)
        elif event.type == "response.output_item.done":
            self.items.append(event.item)
            if len(self.items) > _MAX_ITEMS:
                raise ModelError(f"the model's answer has more than {_MAX_ITEMS} items")
        elif event.type in ("response.completed", "response.incomplete"):
            self._end(event.response)
        elif event.type == "response.failed":
            why = event.response.error
            raise ModelError(f"the model failed: {why.message if why else 'without a reason'}", retryable=True)

    async def read_whole(self, answer: Block, on_text: PassText) -> None:
        """Read an answer that came as one document. Raises errors if it is none."""
        self.items = Response.construct(**{"output": answer["output"]}).output[:_MAX_ITEMS]
        self._end(Response.construct(**answer))
        for block in self._list_content():
            if block["type"] == "text":
                await self._pass_text(block["text"], on_text)

    def _list_content(self) -> Iterator[Block]:
        for item in self.items:
            if item.type == "message":
                text = "".join(part.text if part.type == "output_text" else part.refusal for part in item.content)
                yield {"type": "text", "text": text}
            elif item.type == "function_call":
                yield _build_use(item.call_id, item.name, item.arguments)
            elif item.type == "reasoning":
                yield {"type": _REASONING, "item": item.to_dict(mode="json")}

    def _end(self, response: Response) -> None:
        if used := response.usage:
            self.tokens = _count_tokens(used.input_tokens, used.output_tokens, used.input_tokens_details)
        if any(part.type == "refusal" for item in self.items if item.type == "message" for part in item.content):
            self.reason = "refusal"
        elif response.status != "incomplete":
            self.reason = "tool_calls" if any(item.type == "function_call" for item in self.items) else "stop"
        else:
            self.reason = str(getattr(response.incomplete_details, "reason", None))


def _count_tokens(given: int, output: int, details: object) -> TokenCounts:
    cached = min(getattr(details, "cached_tokens", None) or 0, given)
    return TokenCounts(input=given - cached, output=output, cache_read=cached)


def _encode(request: ModelRequest, translate: Callable[[str, list[Block]], Iterator[Block]]) -> Iterator[Block]:
    for message in request.messages:
        if isinstance(message["content"], str):
            yield {"role": message["role"], "content": message["content"]}
        else:
            yield from translate(message["role"], message["content"])


def _list_chat_messages(role: str, content: list[Block]) -> Iterator[Block]:
    text = "".join(block["text"] for block in content if block["type"] == "text")
    if role == "assistant":
        calls = [
            {"id": block["id"], "type": "function", "function": _write_call(block)}
            for block in content
            if block["type"] == "tool_use"
        ]
        yield {"role": role, "content": text or None, **({"tool_calls": calls} if calls else {})}
        return
    for block in content:
        if block["type"] == "tool_result":
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _write_result(block)}
    if text:
        yield {"role": role, "content": text}


def _list_items(role: str, content: list[Block]) -> Iterator[Block]:
    for block in content:
        if block["type"] == "text":
            yield {"role": role, "content": block["text"]}
        elif block["type"] == "tool_use":
            yield {"type": "function_call", "call_id": block["id"], **_write_call(block)}
        elif block["type"] == "tool_result":
            yield {"type": "function_call_output", "call_id": block["tool_use_id"], "output": _write_result(block)}
        elif block["type"] == _REASONING:
            yield block["item"]


def _define(tool: Block) -> Block:
    return {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}


def _write_call(block: Block) -> Block:
    return {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)}


def _write_result(block: Block) -> str:
    return ("Error: " if block.get("is_error") else "") + str(block["content"])


def _build_use(call_id: str, name: str, arguments: str) -> Block:
    """Return a use of a tool. Arguments that are no JSON object become the field UNREADABLE."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        given = None
    given = given if isinstance(given, dict) else {UNREADABLE: arguments}
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}
