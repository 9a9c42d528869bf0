"""Models of Anthropic's Messages API, by its SDK."""

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import httpx2
from anthropic import (
    AnthropicError,
    APIConnectionError,
    APIStatusError,
    AsyncAnthropic,
    AsyncAnthropicBedrock,
    AsyncAnthropicFoundry,
    AsyncAnthropicVertex,
    DefaultAsyncHttpxClient,
)
from anthropic.lib.streaming import AsyncMessageStream
from anthropic.types import Message, Usage

from mcp_exec_client.agent.outcomes import ModelError
from mcp_exec_client.agent.providers.attempts import repeat_learning
from mcp_exec_client.agent.providers.endpoint import AnswerCut, Endpoint
from mcp_exec_client.agent.providers.model import (
    MAX_ANSWER_CHARACTERS,
    Block,
    ModelReply,
    ModelRequest,
    PassText,
    StopReason,
    TokenCounts,
)
from mcp_exec_client.agent.providers.refusals import Lesson, Refusal
from mcp_exec_client.model_options import DEFAULT_MODEL, Effort, Thinking
from mcp_exec_client.network import reach_directly

AnthropicSdk = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex
"""Clients of the Messages API: Anthropic's own with that of Microsoft Foundry, Amazon Bedrock's, and Vertex AI's."""
_CACHED: Final = {"type": "ephemeral"}
_STOPS: Final[dict[str | None, StopReason]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_use",
    "pause_turn": "pause",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_full",
}
_PASSING: Final = ("overloaded_error", "api_error", "rate_limit_error", "timeout_error")
"""Types of errors in the middle of a stream that a repeated request may not get again."""
_VARIABLES: Final[tuple[tuple[type, str, str], ...]] = (
    (AsyncAnthropicFoundry, "$ANTHROPIC_FOUNDRY_API_KEY", "$ANTHROPIC_FOUNDRY_RESOURCE"),
    (AsyncAnthropicBedrock, "$AWS_BEARER_TOKEN_BEDROCK or the other AWS credentials", "$AWS_REGION"),
    (AsyncAnthropicVertex, "the Google credentials", "$CLOUD_ML_REGION"),
    (object, "$ANTHROPIC_API_KEY", "$ANTHROPIC_BASE_URL"),
)
"""Variables of key and address by the class of the SDK's client; the first class that fits decides."""


class AnthropicProvider:
    """A model of the Messages API, with streaming and prompt caching.

    Requests that are refused before their answer begins (429, 529, lost connections) are sent again as often as the SDK
    would do it, after the time that the API asks for. The SDK's variables $ANTHROPIC_API_KEY and $ANTHROPIC_BASE_URL
    select the endpoint.
    """

    supports_tools = True

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        sdk: AnthropicSdk | None = None,
        caching: bool = True,
        thinking: Thinking | None = None,
        effort: Effort | None = None,
        temperature: float | None = None,
    ) -> None:
        """Create access to a model; nothing is sent yet.

        Args:
            model: name of the model.
            sdk: client of the SDK, by default one from the variables.
            caching: whether to mark what the API may cache.
            thinking: whether the model thinks; by default as the model does by itself. It holds for a conversation.
            effort: how much it thinks and writes; by default as the model does by itself.
            temperature: randomness of the answers, not sent to a model that refuses it, as those do that think; by
                default as the model has it.
        """
        self.model: Final = model
        self._sdk: AnthropicSdk = sdk or reach_directly(AsyncAnthropic(), DefaultAsyncHttpxClient)
        self._once = self._sdk.with_options(max_retries=0)
        key, address = next((key, address) for kind, key, address in _VARIABLES if isinstance(self._sdk, kind))
        self.endpoint: Final = Endpoint(model=model, base_url=self._sdk.base_url, address=address, key=key)
        self._temperature = temperature
        self._most: int | None = None
        """Most tokens of an answer that the model takes, once a refusal has said so."""
        self._caching = caching
        self._settings: dict[str, Any] = {"thinking": {"type": thinking}} if thinking else {}
        self._settings |= {"output_config": {"effort": effort}} if effort else {}

    async def reply(self, request: ModelRequest, *, on_text: PassText) -> ModelReply:
        """Return the model's answer; its text is passed on as it arrives. Raises ModelError."""
        try:
            async with AsyncExitStack() as stack:
                stream = await self._open(request, stack)
                whole = await self.endpoint.read_whole(stream.response)
                if whole is not None:
                    return await self._read_whole(whole, on_text)
                characters = 0
                async for event in stream:
                    if event.type == "text":
                        characters += len(event.text)
                        await on_text(event.text)
                    elif event.type == "input_json":
                        characters += len(event.partial_json)
                    elif event.type == "thinking":
                        characters += len(event.thinking)
                    if characters > MAX_ANSWER_CHARACTERS:
                        raise ModelError(f"the model's answer has more than {MAX_ANSWER_CHARACTERS} characters")
                message = await stream.get_final_message()
            return _read_message(message)
        except (httpx2.TransportError, AnswerCut, ValueError) as error:  # the SDK reads arguments that are not JSON
            raise self.endpoint.cut(error) from error
        except AnthropicError as error:
            raise self._translate(error) from error

    async def _read_whole(self, answer: Block, on_text: PassText) -> ModelReply:
        """Return an answer that came as one document. Raises ModelError."""
        if answer.get("error"):
            raise ModelError(self._explain(Refusal.read(200, answer, "")))
        if answer.get("type") != "message" or not isinstance(answer.get("content"), list) or "usage" not in answer:
            raise self.endpoint.refuse_document()
        reply = _read_message(Message.construct(**answer))
        for block in reply.content:
            if block["type"] == "text":
                await on_text(block["text"])
        return reply

    async def _open(self, request: ModelRequest, stack: AsyncExitStack) -> AsyncMessageStream[Any]:
        """Return the stream of an answer, which the stack closes. Raises AnthropicError."""

        async def send() -> AsyncMessageStream[Any]:
            given: dict[str, Any] = {"max_tokens": self._limit(request), **self._build(request)}
            # the SDK has no parameter for it any more, the API has
            given |= {} if self._temperature is None else {"extra_body": {"temperature": self._temperature}}
            return await stack.enter_async_context(self._once.messages.stream(**given))

        return await repeat_learning(
            send,
            find_lesson=lambda error: self._find_lesson(error, request),
            learn=lambda lesson, error: self._learn(lesson, request),
            is_final=lambda error: isinstance(error, APIStatusError) and _read(error).needs_credit,
            retries=self._sdk.max_retries,
            failures=(APIConnectionError, APIStatusError),
            describe=self._describe,
            notify=request.notify,
        )

    def _limit(self, request: ModelRequest) -> int:
        return request.max_tokens if self._most is None else min(request.max_tokens, self._most)

    def _find_lesson(self, error: Exception, request: ModelRequest) -> Lesson | None:
        if not isinstance(error, APIStatusError):
            return None
        sent = () if self._temperature is None else ("temperature",)
        return _read(error).find_lesson(sent, max_tokens=self._limit(request))

    async def _learn(self, lesson: Lesson, request: ModelRequest) -> bool:
        """Change the form of requests by a refusal, and return whether it could be."""
        if lesson.kind == "limit":
            await request.notify(f"an answer of {self.model} has at most {lesson.tokens} tokens")
            self._most = lesson.tokens
        elif lesson.field == "temperature":
            await request.notify(f"{self.model} does not take temperature {self._temperature:g}: it is not sent")
            self._temperature = None
        else:
            return False
        return True

    async def count_tokens(self, request: ModelRequest) -> TokenCounts:
        """Return the input tokens of a request, as the API counts them. Raises ModelError."""
        try:
            counted = await self._sdk.messages.count_tokens(**self._build(request))
        except AnthropicError as error:
            raise self._translate(error) from error
        return TokenCounts(input=counted.input_tokens)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._sdk.close()

    def _build(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request's parameters. What precedes a mark is cached: tools, system prompt, earlier messages."""
        system: list[Block] = [{"type": "text", "text": request.system}] if request.system else []
        tools, messages = list(request.tools), list(request.messages)
        if self._caching:
            tools, system, messages = _mark_last(tools), _mark_last(system), _mark_message(messages)
        given: dict[str, Any] = {"model": self.model, "messages": messages, **self._settings}
        return given | ({"tools": tools} if tools else {}) | ({"system": system} if system else {})

    def _describe(self, error: APIConnectionError | APIStatusError) -> str:
        if isinstance(error, APIStatusError):
            return f"{self.endpoint} answers {_read(error)}"
        return self.endpoint.describe_absence(error)

    def _translate(self, error: AnthropicError) -> ModelError:
        if isinstance(error, APIConnectionError):
            return ModelError(f"{self._describe(error)}: check {self.endpoint.address}, the network and its proxy")
        if isinstance(error, APIStatusError):
            refusal = _read(error)
            # an error in the middle of a stream comes with the status of its beginning
            if error.status_code < 400 and refusal.kind in _PASSING:
                return self.endpoint.cut(AnswerCut(f"{refusal.kind}: {refusal.message}"))
            return ModelError(self._explain(refusal))
        return ModelError(f"{self.endpoint} failed: {error}")

    def _explain(self, refusal: Refusal) -> str:
        return refusal.describe(self.endpoint, attempts=self._sdk.max_retries + 1)


def _read(error: APIStatusError) -> Refusal:
    return Refusal.read(error.status_code, error.body, error.message)


def _mark_last(items: Sequence[Block]) -> list[Block]:
    return [*items[:-1], {**items[-1], "cache_control": _CACHED}] if items else []


def _mark_message(messages: Sequence[Block]) -> list[Block]:
    *earlier, last = messages
    content = last["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*earlier, {**last, "content": _mark_last(blocks)}]


def _read_message(message: Message) -> ModelReply:
    if message.stop_reason is None:
        raise AnswerCut("the stream ended before the message")
    stop = _STOPS.get(message.stop_reason)
    if stop is None:
        raise ModelError(f"the model stopped for an unknown reason: {message.stop_reason}")
    content = list(_read_blocks(message))
    explained = message.stop_details.explanation if stop == "refusal" and message.stop_details else None
    content += [{"type": "text", "text": explained}] if explained else []
    return ModelReply(content=content, stop=stop, tokens=_read_usage(message.usage))


def _read_blocks(message: Message) -> Iterable[Block]:
    for block in message.content:
        fields = block.to_dict(mode="json")
        fields.pop("parsed_output", None)  # the SDK's own; the API refuses it in a request
        yield fields


def _read_usage(usage: Usage) -> TokenCounts:
    return TokenCounts(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_input_tokens or 0,
        cache_write=usage.cache_creation_input_tokens or 0,
    )
