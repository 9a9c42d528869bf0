"""Models of Anthropic's Messages API, by its SDK."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import httpx2
from anthropic import (
    AnthropicError,
    APIConnectionError,
    APIStatusError,
    AsyncAnthropic,
    AsyncAnthropicBedrock,
    AsyncAnthropicVertex,
    DefaultAsyncHttpxClient,
    NotFoundError,
)
from anthropic.types import Message, Usage

from mcp_exec_client.agent.outcomes import ModelError
from mcp_exec_client.agent.providers.model import (
    MAX_ANSWER_CHARACTERS,
    Block,
    ModelReply,
    ModelRequest,
    PassText,
    StopReason,
    TokenCounts,
    describe_missing_model,
)
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


class AnthropicProvider:
    """A model of the Messages API, with streaming and prompt caching.

    The SDK repeats requests that are refused before their answer begins (429, 529, lost connections), and waits as long
    as the API asks for. Its variables $ANTHROPIC_API_KEY and $ANTHROPIC_BASE_URL select the endpoint.
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
    ) -> None:
        """Create access to a model; nothing is sent yet.

        Args:
            model: name of the model.
            sdk: client of the SDK, by default one from the variables.
            caching: whether to mark what the API may cache.
            thinking: whether the model thinks; by default as the model does by itself. It holds for a conversation.
            effort: how much it thinks and writes; by default as the model does by itself.
        """
        self.model: Final = model
        self._sdk: AnthropicSdk = sdk or reach_directly(AsyncAnthropic(), DefaultAsyncHttpxClient)
        self._caching = caching
        self._settings: dict[str, Any] = {"thinking": {"type": thinking}} if thinking else {}
        self._settings |= {"output_config": {"effort": effort}} if effort else {}

    async def reply(self, request: ModelRequest, *, on_text: PassText) -> ModelReply:
        """Return the model's answer; its text is passed on as it arrives. Raises ModelError."""
        try:
            given = self._build(request)
            async with self._sdk.messages.stream(max_tokens=request.max_tokens, **given) as stream:
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
        except httpx2.TransportError as error:
            raise ModelError(
                f"the model's answer was cut off: {error or type(error).__name__}", retryable=True
            ) from error
        except AnthropicError as error:
            raise self._translate(error) from error
        return _read_message(message)

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

    def _translate(self, error: AnthropicError) -> ModelError:
        if isinstance(error, APIConnectionError):
            why = f" ({error.__cause__})" if str(error.__cause__ or "") else ""
            hint = "check $ANTHROPIC_BASE_URL, the network and its proxy"
            return ModelError(f"the model at {self._sdk.base_url} cannot be reached{why}: {hint}")
        if isinstance(error, APIStatusError):
            # an error in the middle of a stream comes with the status of its beginning
            is_passing = error.status_code < 400 and _find_type(error.body) in _PASSING
            hint = describe_missing_model(self.model) if isinstance(error, NotFoundError) else ""
            return ModelError(f"the model's API refused the request: {error}{hint}", retryable=is_passing)
        return ModelError(f"the model's API failed: {error}")


def _find_type(body: object) -> str:
    error: Any = body.get("error", body) if isinstance(body, dict) else {}
    return str(error.get("type")) if isinstance(error, dict) else ""


def _mark_last(items: Sequence[Block]) -> list[Block]:
    return [*items[:-1], {**items[-1], "cache_control": _CACHED}] if items else []


def _mark_message(messages: Sequence[Block]) -> list[Block]:
    *earlier, last = messages
    content = last["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*earlier, {**last, "content": _mark_last(blocks)}]


def _read_message(message: Message) -> ModelReply:
    if message.stop_reason is None:
        raise ModelError("the model's answer was cut off: the stream ended before the message", retryable=True)
    stop = _STOPS.get(message.stop_reason)
    if stop is None:
        raise ModelError(f"the model stopped for an unknown reason: {message.stop_reason}")
    return ModelReply(content=list(_read_blocks(message)), stop=stop, tokens=_read_usage(message.usage))


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
