"""Models of endpoints that speak OpenAI's chat API, by its SDK."""

from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from openai import AsyncAzureOpenAI, AsyncOpenAI, AsyncStream, OpenAIError
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

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
from mcp_exec_client.agent.providers.openai_responses import OpenAIResponsesProvider
from mcp_exec_client.agent.providers.openai_sdk import (
    OpenAISdkProvider,
    StreamedAnswer,
    read_arguments,
    write_arguments,
)
from mcp_exec_client.agent.providers.refusals import Lesson
from mcp_exec_client.model_options import Effort

_STOPS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "filtered",
}
_MAX_CALLS: Final = 128
"""Tool calls of one answer, the API's limit of parallel calls."""
_LIMITS: Final = ("max_completion_tokens", "max_tokens")
"""Names of the field with the most tokens of an answer."""


class OpenAIProvider(OpenAISdkProvider):
    """A model of an OpenAI-compatible endpoint. One that has only the Responses API is asked by that."""

    def __init__(
        self,
        model: str,
        *,
        sdk: AsyncOpenAI | None = None,
        supports_tools: bool = True,
        limit_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens",
        effort: Effort | None = None,
        temperature: float | None = None,
    ) -> None:
        """Create access to a model; nothing is sent yet.

        Args:
            model: name of the model.
            sdk: client of the SDK, by default one from the variables.
            supports_tools: whether the model can use tools; if not, code is taken from fenced blocks.
            limit_field: field with the most tokens of an answer; the other one is used if an endpoint refuses it.
            effort: how much a model thinks; by default as the model does by itself.
            temperature: randomness of the answers, not sent to a model that refuses it; by default as the model has it.
        """
        super().__init__(model, sdk=sdk, supports_tools=supports_tools, temperature=temperature)
        self._limit_fields = [limit_field, *(name for name in _LIMITS if name != limit_field)]
        self._effort = effort
        self._counts_usage = True
        """Whether the endpoint takes `stream_options`, which ask for the number of tokens."""
        self._responses: OpenAIResponsesProvider | None = None
        """Access by the Responses API, once the chat API has named it."""

    async def _open(self, request: ModelRequest) -> tuple[AsyncStream[Any], StreamedAnswer]:
        if self._responses is not None:
            return await self._responses._begin(request)  # noqa: SLF001 - the same model by another API
        return await self._once.chat.completions.create(**self._build(request)), _Answer()

    def _list_fields(self, request: ModelRequest) -> Collection[str]:
        options = ["stream_options"] if self._counts_usage else []
        return {*super()._list_fields(request), *options, *self._limit_fields[:1]}

    async def _learn(self, lesson: Lesson, error: OpenAIError, request: ModelRequest) -> bool:
        if lesson.kind == "responses":
            await request.notify(f"{self.model} is asked by the Responses API: the chat API does not have it")
            self._responses = OpenAIResponsesProvider(
                self.model, sdk=_select_responses(self._sdk), effort=self._effort, temperature=self._temperature
            )
        elif lesson.field == "stream_options":
            self._counts_usage = False
        elif lesson.field == self._limit_fields[0] and len(self._limit_fields) > 1:
            del self._limit_fields[0]
        else:
            return await super()._learn(lesson, error, request)
        return True

    def _build(self, request: ModelRequest) -> dict[str, Any]:
        messages = [each for message in request.messages for each in _translate_message(message)]
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        given: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            self._limit_fields[0]: self._limit(request),
        }
        given |= {"stream_options": {"include_usage": True}} if self._counts_usage else {}
        given |= {"reasoning_effort": self._effort} if self._effort else {}
        given |= {} if self._temperature is None else {"temperature": self._temperature}
        return given | ({"tools": [_translate_tool(tool) for tool in request.tools]} if request.tools else {})


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

    def to_block(self, default_id: str) -> Block:
        given = read_arguments(self.arguments)
        return {"type": "tool_use", "id": self.id or default_id, "name": self.name, "input": given}


@dataclass(kw_only=True)
class _Answer(StreamedAnswer):
    """The parts of an answer as they arrive."""

    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    """Text of a model that refuses."""
    calls: list[_Call] = field(default_factory=list)
    newest: dict[int, _Call] = field(default_factory=dict)
    """The call that further parts with an index belong to."""
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
                for found, parts in ((choice.delta.content, self.text), (choice.delta.refusal, self.refusal)):
                    if found:
                        self.count(found)
                        parts.append(found)
                        await on_text(found)

    async def read_whole(self, answer: Block, on_text: PassText) -> None:
        """Read an answer that came as one document, as a stream with one part."""
        choice = answer["choices"][0]
        calls = [{"index": index, **call} for index, call in enumerate(choice["message"].get("tool_calls") or ())]
        given = {"index": 0, "finish_reason": choice["finish_reason"] or "stop"}
        parts = [{**given, "delta": {**choice["message"], "tool_calls": calls}}]
        part = ChatCompletionChunk.construct(**{**answer, "choices": parts})

        async def stream() -> AsyncIterator[ChatCompletionChunk]:
            yield part

        await self.read(stream(), on_text)

    def build(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer. Raises ModelError and AnswerCut."""
        if self.stop is None:
            raise AnswerCut("the stream ended before the message")
        text = "".join([*self.text, *self.refusal])
        content: list[Block] = [{"type": "text", "text": text}] if text else []
        content += [call.to_block(f"call_{number}") for number, call in enumerate(self.calls)]
        stop: StopReason | None = "refusal" if self.refusal else _STOPS.get(self.stop)
        if stop is None:
            raise ModelError(f"the model stopped for an unknown reason: {self.stop[:100]}")
        return ModelReply(content=content, stop=stop, tokens=self._read_tokens(request, content))

    def _add_call(self, part: ChoiceDeltaToolCall) -> None:
        call = self.newest.get(part.index)
        if call is None or call.ends_before(part):
            if len(self.calls) >= _MAX_CALLS:
                raise ModelError(f"the model's answer has more than {_MAX_CALLS} tool calls")
            call = self.newest[part.index] = _Call()
            self.calls.append(call)
        call.id = call.id or part.id or ""
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


def _select_responses(sdk: AsyncOpenAI) -> AsyncOpenAI:
    """Return the client for the Responses API: at Azure it is at the path of version 1, whatever version is set."""
    if not isinstance(sdk, AsyncAzureOpenAI):
        return sdk
    path = sdk.base_url.path.partition("/deployments/")[0].rstrip("/")
    return sdk.copy(base_url=sdk.base_url.copy_with(path=f"{path}/v1/"), api_version="preview")


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
