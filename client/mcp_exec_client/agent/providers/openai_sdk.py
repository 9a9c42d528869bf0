"""What both APIs of OpenAI's SDK have in common: a stream of parts, errors, and arguments as text."""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection
from typing import Any, Final

from httpx2 import TransportError
from openai import (
    APIConnectionError,
    APIStatusError,
    AsyncAzureOpenAI,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    OpenAIError,
)

from mcp_exec_client.agent.outcomes import ModelError, ToolsRefused
from mcp_exec_client.agent.providers.attempts import repeat_learning
from mcp_exec_client.agent.providers.endpoint import AnswerCut, Endpoint
from mcp_exec_client.agent.providers.model import (
    MAX_ANSWER_CHARACTERS,
    UNREADABLE,
    Block,
    ModelReply,
    ModelRequest,
    PassText,
    TokenCounts,
    estimate_input,
)
from mcp_exec_client.agent.providers.refusals import Lesson, Refusal
from mcp_exec_client.network import reach_directly


class StreamedAnswer(ABC):
    """The parts of an answer as they arrive."""

    characters: int = 0

    @abstractmethod
    async def read(self, events: AsyncIterator[Any], on_text: PassText) -> None:
        """Read all events. Raises ModelError if the API fails, or if there are too many."""

    @abstractmethod
    async def read_whole(self, answer: Block, on_text: PassText) -> None:
        """Read an answer that came as one document. Raises ModelError, and other errors if it is none."""

    @abstractmethod
    def build(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer. Raises ModelError and AnswerCut."""

    def count(self, text: str) -> None:
        """Add a part's characters. Raises ModelError if there are too many."""
        self.characters += len(text)
        if self.characters > MAX_ANSWER_CHARACTERS:
            raise ModelError(f"the model's answer has more than {MAX_ANSWER_CHARACTERS} characters")


class OpenAISdkProvider(ABC):
    """A model that OpenAI's SDK asks, with streaming.

    Requests that are refused before their answer begins are sent again as often as the SDK would do it, after the time
    that the API asks for. A request that the model does not take as it is is sent in the form that the refusal names.
    The SDK's variables $OPENAI_API_KEY and $OPENAI_BASE_URL select the endpoint.
    """

    def __init__(
        self, model: str, *, sdk: AsyncOpenAI | None, supports_tools: bool = True, temperature: float | None = None
    ) -> None:
        self.model: Final = model
        self.supports_tools = supports_tools
        self._sdk = sdk or reach_directly(AsyncOpenAI(), DefaultAsyncHttpxClient)
        self._once = self._sdk.with_options(max_retries=0)
        self.endpoint: Final = _describe_endpoint(self._sdk, model)
        self._temperature = temperature
        self._most: int | None = None
        """Most tokens of an answer that the model takes, once a refusal has said so."""

    @abstractmethod
    async def _open(self, request: ModelRequest) -> tuple[AsyncStream[Any], StreamedAnswer]:
        """Send a request, and return the stream and what its events become."""

    async def reply(self, request: ModelRequest, *, on_text: PassText) -> ModelReply:
        """Return the model's answer; its text is passed on as it arrives. Raises ModelError."""
        stream, answer = await self._begin(request)
        try:
            async with stream:
                whole = await self.endpoint.read_whole(stream.response)
                if whole is None:
                    await answer.read(stream, on_text)
                elif whole.get("error"):
                    raise ModelError(self._explain(Refusal.read(stream.response.status_code, whole, "")))
                else:
                    await self._read_whole(answer, whole, on_text)
            return answer.build(request)
        except (OpenAIError, TransportError, AnswerCut, ValueError) as error:
            raise self.endpoint.cut(error) from error

    async def _read_whole(self, answer: StreamedAnswer, whole: Block, on_text: PassText) -> None:
        try:
            await answer.read_whole(whole, on_text)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self.endpoint.refuse_document() from error

    async def count_tokens(self, request: ModelRequest) -> TokenCounts:
        """Return an estimate of the input tokens of a request."""
        return TokenCounts(input=estimate_input(request), counted="estimate")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._sdk.close()

    async def _begin(self, request: ModelRequest) -> tuple[AsyncStream[Any], StreamedAnswer]:
        """Return the stream of an answer and what its events become. Raises ModelError."""
        try:
            return await repeat_learning(
                lambda: self._open(request),
                find_lesson=lambda error: self._find_lesson(error, request),
                learn=lambda lesson, error: self._learn(lesson, error, request),
                is_final=lambda error: isinstance(error, APIStatusError) and _read(error).needs_credit,
                retries=self._sdk.max_retries,
                failures=(APIConnectionError, APIStatusError),
                describe=self._describe,
                notify=request.notify,
            )
        except OpenAIError as error:
            raise self._translate(error) from error

    def _limit(self, request: ModelRequest) -> int:
        return request.max_tokens if self._most is None else min(request.max_tokens, self._most)

    def _list_fields(self, request: ModelRequest) -> Collection[str]:
        """Return the fields of a request that it can be sent without, or in another form."""
        return {*(["tools"] if request.tools else []), *(["temperature"] if self._temperature is not None else [])}

    def _find_lesson(self, error: Exception, request: ModelRequest) -> Lesson | None:
        if not isinstance(error, APIStatusError):
            return None
        return _read(error).find_lesson(self._list_fields(request), max_tokens=self._limit(request))

    async def _learn(self, lesson: Lesson, error: OpenAIError, request: ModelRequest) -> bool:
        """Change the form of requests by a refusal, and return whether it could be. Raises ToolsRefused."""
        if lesson.kind == "limit":
            if self._most is None:
                await request.notify(f"an answer of {self.model} has at most {lesson.tokens} tokens")
            self._most = lesson.tokens
        elif lesson.kind == "tools":
            self.supports_tools = False
            raise ToolsRefused(f"{self.model} cannot use tools: its code is taken from fenced blocks") from error
        elif lesson.field == "temperature":
            await request.notify(f"{self.model} does not take temperature {self._temperature:g}: it is not sent")
            self._temperature = None
        else:
            return False
        return True

    def _describe(self, error: APIConnectionError | APIStatusError) -> str:
        if isinstance(error, APIStatusError):
            return f"{self.endpoint} answers {_read(error)}"
        return self.endpoint.describe_absence(error)

    def _translate(self, error: OpenAIError) -> ModelError:
        if isinstance(error, APIConnectionError):
            return ModelError(f"{self._describe(error)}: check {self.endpoint.address}, the network and its proxy")
        if isinstance(error, APIStatusError):
            return ModelError(self._explain(_read(error)))
        return ModelError(f"{self.endpoint} failed: {error}")

    def _explain(self, refusal: Refusal) -> str:
        return refusal.describe(self.endpoint, attempts=self._sdk.max_retries + 1)


def _describe_endpoint(sdk: AsyncOpenAI, model: str) -> Endpoint:
    if not isinstance(sdk, AsyncAzureOpenAI):
        return Endpoint(model=model, base_url=sdk.base_url, address="$OPENAI_BASE_URL", key="$OPENAI_API_KEY")
    return Endpoint(
        model=model,
        base_url=sdk.base_url,
        address="$AZURE_OPENAI_ENDPOINT or llm.azure_endpoint",
        key="$AZURE_OPENAI_API_KEY",
        deployment=True,
    )


def _read(error: APIStatusError) -> Refusal:
    return Refusal.read(error.status_code, error.body, error.message)


def read_arguments(text: str) -> Block:
    """Return the arguments of a call. Text that is no JSON object becomes the field UNREADABLE."""
    try:
        given = json.loads(text or "{}")
    except (ValueError, RecursionError):
        given = None
    return given if isinstance(given, dict) else {UNREADABLE: text}


def write_arguments(given: Block) -> str:
    """Return the arguments of a call as the API has them."""
    return json.dumps(given, ensure_ascii=False)
