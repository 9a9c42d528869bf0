"""What both APIs of OpenAI's SDK have in common: a stream of parts, errors, and arguments as text."""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, Final

from openai import (
    APIConnectionError,
    APIStatusError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    NotFoundError,
    OpenAIError,
)

from mcp_exec_client.agent.outcomes import ModelError
from mcp_exec_client.agent.providers.model import (
    MAX_ANSWER_CHARACTERS,
    Block,
    ModelReply,
    ModelRequest,
    PassText,
    TokenCounts,
    describe_missing_model,
    estimate_input,
)
from mcp_exec_client.network import reach_directly


class StreamedAnswer(ABC):
    """The parts of an answer as they arrive."""

    characters: int = 0

    @abstractmethod
    async def read(self, events: AsyncIterator[Any], on_text: PassText) -> None:
        """Read all events. Raises ModelError if the API fails, or if there are too many."""

    @abstractmethod
    def build(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer. Raises ModelError."""

    def count(self, text: str) -> None:
        """Add a part's characters. Raises ModelError if there are too many."""
        self.characters += len(text)
        if self.characters > MAX_ANSWER_CHARACTERS:
            raise ModelError(f"the model's answer has more than {MAX_ANSWER_CHARACTERS} characters")


class OpenAISdkProvider(ABC):
    """A model that OpenAI's SDK asks, with streaming.

    The SDK repeats requests that are refused before their answer begins, and waits as long as the API asks for. Its
    variables $OPENAI_API_KEY and $OPENAI_BASE_URL select the endpoint.
    """

    def __init__(self, model: str, *, sdk: AsyncOpenAI | None, supports_tools: bool = True) -> None:
        self.model: Final = model
        self.supports_tools: Final = supports_tools
        self._sdk = sdk or reach_directly(AsyncOpenAI(), DefaultAsyncHttpxClient)

    @abstractmethod
    async def _open(self, request: ModelRequest) -> tuple[AsyncStream[Any], StreamedAnswer]:
        """Send a request, and return the stream and what its events become."""

    async def reply(self, request: ModelRequest, *, on_text: PassText) -> ModelReply:
        """Return the model's answer; its text is passed on as it arrives. Raises ModelError."""
        try:
            stream, answer = await self._open(request)
        except OpenAIError as error:
            raise self._translate(error) from error
        try:
            async with stream:
                await answer.read(stream, on_text)
        except OpenAIError as error:
            raise ModelError(f"the model's answer was cut off: {error}", retryable=True) from error
        return answer.build(request)

    async def count_tokens(self, request: ModelRequest) -> TokenCounts:
        """Return an estimate of the input tokens of a request."""
        return TokenCounts(input=estimate_input(request), counted="estimate")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._sdk.close()

    def _translate(self, error: OpenAIError) -> ModelError:
        if isinstance(error, APIConnectionError):
            why = f" ({error.__cause__})" if str(error.__cause__ or "") else ""
            hint = "check $OPENAI_BASE_URL, the network and its proxy"
            return ModelError(f"the model at {self._sdk.base_url} cannot be reached{why}: {hint}")
        if isinstance(error, APIStatusError):
            hint = describe_missing_model(self.model) if isinstance(error, NotFoundError) else ""
            return ModelError(f"the model's API refused the request: {error}{hint}")
        return ModelError(f"the model's API failed: {error}")


def read_arguments(text: str) -> Block:
    """Return the arguments of a call. Text that is no JSON object becomes a field that says so."""
    try:
        given = json.loads(text or "{}")
    except (ValueError, RecursionError):
        given = None
    # the model receives the name of this field with the ones that are allowed
    return given if isinstance(given, dict) else {"arguments_that_are_no_json_object": text}


def write_arguments(given: Block) -> str:
    """Return the arguments of a call as the API has them."""
    return json.dumps(given, ensure_ascii=False)
