"""Models of endpoints that speak OpenAI's chat API or its Responses API, by its SDK."""

from collections.abc import Collection
from typing import Any, Final, Literal

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
    Block,
    ModelReply,
    ModelRequest,
    PassText,
    TokenCounts,
    estimate_input,
)
from mcp_exec_client.agent.providers.openai_codecs import (
    Answer,
    ChatAnswer,
    ResponsesAnswer,
    encode_chat,
    encode_responses,
)
from mcp_exec_client.agent.providers.refusals import Lesson, Refusal
from mcp_exec_client.model_options import Effort
from mcp_exec_client.network import reach_directly

_LIMITS: Final = ("max_completion_tokens", "max_tokens")
"""Names of the chat API's field with the most tokens of an answer."""


class OpenAIProvider:
    """A model of an OpenAI-compatible endpoint. One that has only the Responses API is asked by that.

    Requests that are refused before their answer begins are sent again as often as the SDK would do it, after the time
    that the API asks for. A request that the model does not take as it is is sent in the form that the refusal names.
    The SDK's variables $OPENAI_API_KEY and $OPENAI_BASE_URL select the endpoint.
    """

    _by_responses = False

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
            limit_field: the chat API's field of the most tokens of an answer; the other one is used if it is refused.
            effort: how much a model thinks; by default as the model does by itself.
            temperature: randomness of the answers, not sent to a model that refuses it; by default as the model has it.
        """
        self.model: Final = model
        self.supports_tools = supports_tools
        self._use(sdk or reach_directly(AsyncOpenAI(), DefaultAsyncHttpxClient))
        self._limit_fields = [limit_field, *(name for name in _LIMITS if name != limit_field)]
        self._effort = effort
        self._temperature = temperature
        self._counts_usage = True
        """Whether the endpoint takes `stream_options`, which ask for the number of tokens."""
        self._most: int | None = None
        """Most tokens of an answer that the model takes, once a refusal has said so."""

    def _use(self, sdk: AsyncOpenAI) -> None:
        self._sdk = sdk
        self._once = sdk.with_options(max_retries=0)
        self.endpoint = _describe_endpoint(sdk, self.model)

    async def _open(self, request: ModelRequest) -> tuple[AsyncStream[Any], Answer]:
        """Send a request, and return the stream and what its events become."""
        given: dict[str, Any] = {"model": self.model, "stream": True}
        given |= {} if self._temperature is None else {"temperature": self._temperature}
        if self._by_responses:
            given |= {"max_output_tokens": self._limit(request)}
            given |= {"store": False, "include": ["reasoning.encrypted_content"]}
            given |= {"reasoning": {"effort": self._effort}} if self._effort else {}
            return await self._once.responses.create(**given, **encode_responses(request)), ResponsesAnswer()
        given |= {self._limit_fields[0]: self._limit(request)}
        given |= {"stream_options": {"include_usage": True}} if self._counts_usage else {}
        given |= {"reasoning_effort": self._effort} if self._effort else {}
        return await self._once.chat.completions.create(**given, **encode_chat(request)), ChatAnswer()

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

    async def _read_whole(self, answer: Answer, whole: Block, on_text: PassText) -> None:
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

    async def _begin(self, request: ModelRequest) -> tuple[AsyncStream[Any], Answer]:
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
        used = {"tools": request.tools, "temperature": self._temperature is not None}
        if not self._by_responses:
            used |= {"stream_options": self._counts_usage, self._limit_fields[0]: True}
        return [name for name, is_used in used.items() if is_used]

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
        elif lesson.kind == "responses" and not self._by_responses:
            await request.notify(f"{self.model} is asked by the Responses API: the chat API does not have it")
            self._by_responses = True
            self._use(_select_responses(self._sdk))
        elif lesson.field == "stream_options":
            self._counts_usage = False
        elif lesson.field == self._limit_fields[0] and len(self._limit_fields) > 1:
            del self._limit_fields[0]
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


class OpenAIResponsesProvider(OpenAIProvider):
    """A model of OpenAI's Responses API. The API stores nothing: each request has the whole conversation."""

    _by_responses = True


def _select_responses(sdk: AsyncOpenAI) -> AsyncOpenAI:
    """Return the client for the Responses API: at Azure it is at the path of version 1, whatever version is set."""
    if not isinstance(sdk, AsyncAzureOpenAI):
        return sdk
    path = sdk.base_url.path.partition("/deployments/")[0].rstrip("/")
    return sdk.copy(base_url=sdk.base_url.copy_with(path=f"{path}/v1/"), api_version="preview")


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
