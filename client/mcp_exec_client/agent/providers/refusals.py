"""What the refusal of a request says: a field or a number that the model does not take, or what the user can do.

APIs differ in what they take and do not list it. So a request is sent as most of them take it, and what a refusal says
holds for the rest of the conversation. The words are those of the vendors.
"""

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal

from mcp_exec_client.agent.providers.endpoint import Endpoint

_MAX_MESSAGE: Final = 2000
"""Characters of a message that are searched and shown."""
_FEWEST_TOKENS: Final = 256
"""A smaller answer is of no use: the conversation is too large for the model."""
_WRONG_REQUEST: Final = (400, 404, 422, 500, 501)
"""Statuses of requests that an API does not understand; llama.cpp answers 500."""
_MOST: Final = (
    re.compile(r"supports at most (\d{1,9})"),
    re.compile(r"max_tokens: \d{1,9} > (\d{1,9})"),
    re.compile(r"(?:a value <=|less than or equal to) [`']?(\d{1,9})"),
    re.compile(r"range of max_tokens is \[\d{1,9}, ?(\d{1,9})\]"),
)
"""Most tokens of an answer: OpenAI and Azure, Anthropic, the Responses API and Groq, DeepSeek."""
_WINDOWS: Final = (
    re.compile(r"context length is (?P<window>\d{1,9}) tokens and your request has (?P<input>\d{1,9}) input tokens"),
    re.compile(r"passed (?P<input>\d{1,9}) input tokens .{0,200}context length is only (?P<window>\d{1,9})", re.DOTALL),
    re.compile(
        r"context length is (?P<window>\d{1,9}) tokens.{0,20}you requested (?P<all>\d{1,9}) tokens"
        r" \(.{0,200}?(?P<output>\d{1,9}) in the completion",
        re.DOTALL,
    ),
)
"""Context windows of vLLM and of earlier models of OpenAI, which answer and input share."""
_RESPONSES: Final = re.compile(
    r"v1/responses|chatCompletion operation does not work|not a chat model|not accessible via the /chat/completions"
)
_NO_TOOLS: Final = re.compile(
    r"does not support (?:tools|tool|function)|tools param requires|unsupported param: tools"
    r"|tool choice requires|that support tool use|[`']?tools?[`']? (?:is|are) not supported",
    re.IGNORECASE,
)
"""Ollama, llama.cpp, vLLM, OpenRouter, OpenAI."""
_UNKNOWN: Final = re.compile(
    r"unrecognized|unknown|unsupported|not supported|not support|extra_forbidden|extra inputs|not permitted|unexpected",
    re.IGNORECASE,
)
_FILTERED: Final = re.compile(r"content_filter|content management policy|ResponsibleAIPolicyViolation")
_NO_CREDIT: Final = re.compile(
    r"insufficient_quota|billing_hard_limit|billing_error|credit balance is too low"
    r"|insufficient (?:balance|credits|funds)",
    re.IGNORECASE,
)
"""OpenAI, Anthropic, DeepSeek, OpenRouter. Words about a quota are not among them: some have one for each minute."""
_TOO_LONG: Final = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|available context size|prompt is too long",
    re.IGNORECASE,
)
_NAMES_MODEL: Final = re.compile(r"model|deployment", re.IGNORECASE)
_TITLE: Final = re.compile(r"<title>([^<]{1,200})</title>", re.IGNORECASE)
_PAGE: Final = re.compile(r"<(?:!doctype|html)", re.IGNORECASE)
TOO_LONG: Final = (
    "begin a new one, or let code print less; a local server may have a larger one: `-c 16384` of llama-server, "
    "OLLAMA_CONTEXT_LENGTH, or vLLM's --max-model-len"
)
"""What to do if the conversation is larger than the model's context."""
REFUSED: Final = "put the task in other words, or name another model: --model NAME, or --fallback PROVIDER:MODEL"
"""What to do if a model refuses."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What a refusal says about the model."""

    kind: Literal["limit", "field", "tools", "responses"]
    """An answer of `tokens` at most; a `field` that is not taken; no tools; only the Responses API."""
    tokens: int = 0
    field: str = ""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Status and words of a refused request."""

    status: int
    kind: str
    """Type or code of the error, or an empty text."""
    message: str

    @classmethod
    def read(cls, status: int, body: object, text: str) -> "Refusal":
        """Read the body of an error, whose form differs; `text` is used if there is none."""
        outer: dict[str, Any] = body if isinstance(body, dict) else {}
        text = body if isinstance(body, str) and body else text
        error = outer.get("error", outer)
        inner: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
        kind = next((value for name in ("code", "type") if isinstance(value := inner.get(name), str) and value), "")
        message = _read_text(status, str(inner.get("message") or inner.get("detail") or text)[:_MAX_MESSAGE])
        given, window = inner.get("n_prompt_tokens"), inner.get("n_ctx")
        if isinstance(given, int) and isinstance(window, int):
            message += f" ({given} tokens of {window})"
        return cls(status=status, kind=kind[:100], message=message)

    def __str__(self) -> str:
        kind = "" if self.kind == str(self.status) else self.kind
        return f"{self.status}{' ' * bool(kind)}{kind}: {self.message}"

    @property
    def needs_credit(self) -> bool:
        """Whether the account has none left, so that time does not help."""
        return self.status == 402 or _NO_CREDIT.search(f"{self.kind} {self.message}") is not None

    def find_lesson(self, sent: Collection[str], *, max_tokens: int) -> Lesson | None:
        """Return what a request with these fields has to be without, or None.

        `max_tokens` is the limit of the answer that was sent.
        """
        if self.status not in _WRONG_REQUEST:
            return None
        if _RESPONSES.search(self.message):
            return Lesson(kind="responses")
        if (most := self._find_most()) is not None:
            return Lesson(kind="limit", tokens=most) if _FEWEST_TOKENS <= most < max_tokens else None
        if "tools" in sent and _NO_TOOLS.search(self.message):
            return Lesson(kind="tools")
        if "temperature" in sent and "temperature" in self.message:
            return Lesson(kind="field", field="temperature")
        if not _UNKNOWN.search(self.message):
            return None
        # the name of the other field of a pair is in the advice: "Use 'max_completion_tokens' instead"
        named = self.message.partition(" Use ")[0]
        field = next((name for name in sorted(sent) if re.search(rf"\b{re.escape(name)}\b", named)), None)
        return None if field is None else Lesson(kind="field", field=field)

    def _find_most(self) -> int | None:
        for pattern in _MOST:
            if found := pattern.search(self.message):
                return int(found[1])
        for pattern in _WINDOWS:
            if found := pattern.search(self.message):
                parts = {name: int(value) for name, value in found.groupdict().items()}
                given = parts["input"] if "input" in parts else parts["all"] - parts["output"]
                return parts["window"] - given
        return None

    def describe(self, endpoint: Endpoint, *, attempts: int) -> str:
        """Return what happened and what to do."""
        if self.needs_credit:
            return f"{endpoint} refused the request: {self}; {_PAY}"
        if self.status in (401, 403):
            return f"{endpoint} refused the request: {self}; check {endpoint.key}"
        if self.status == 404:
            of_address = f"check {endpoint.address}; or "
            of_address = "" if _NAMES_MODEL.search(f"{self.kind} {self.message}") else of_address
            return f"{endpoint} refused the request: {self}; {of_address}{endpoint.advise_name()}"
        if self.status == 429:
            return f"{endpoint} takes no more requests now: {self}, after {attempts} attempts; {LATER}"
        if self.status == 529 or self.status == 503:
            return f"{endpoint} is overloaded: {self}, after {attempts} attempts; {LATER}"
        if self.status >= 500:
            return f"{endpoint} failed: {self}, after {attempts} attempts; {LATER}"
        if _FILTERED.search(f"{self.kind} {self.message}"):
            return f"the model refused: {self.message}; {REFUSED}"
        if _TOO_LONG.search(f"{self.kind} {self.message}"):
            return f"the conversation is larger than the model's context: {endpoint} answers {self}; {TOO_LONG}"
        return f"{endpoint} refused the request: {self}"


def _read_text(status: int, text: str) -> str:
    """Return the words of an error: the title of a web page, and those of the status if there are none."""
    if _PAGE.match(text.lstrip()):
        title = _TITLE.search(text)
        text = title[1].strip() if title else ""
    elif text == f"Error code: {status}":
        text = ""
    words = text.removeprefix(str(status)).strip()
    if not words:
        with suppress(ValueError):
            return HTTPStatus(status).phrase
    return words or "without a text"


_PAY: Final = (
    "the account has no credit left: see the billing page of the provider, or name a model that goes on: "
    "--fallback PROVIDER:MODEL"
)
LATER: Final = "try again later, or name a model that goes on: --fallback PROVIDER:MODEL"
