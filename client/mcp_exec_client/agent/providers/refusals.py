"""What the refusal of a request says: a field or a number that the model does not take, or what the user can do.

APIs differ in what they take and do not list it. So a request is sent as most of them take it, and what a refusal says
holds for the rest of the conversation. The words are those of the vendors.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
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
        error = outer.get("error", outer)
        inner: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
        kind = next((value for name in ("code", "type") if isinstance(value := inner.get(name), str) and value), "")
        message = inner.get("message") or inner.get("detail") or text
        return cls(status=status, kind=kind[:100], message=str(message)[:_MAX_MESSAGE])

    def __str__(self) -> str:
        return f"{self.status}{' ' * bool(self.kind)}{self.kind}: {self.message}"

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
        if self.status in (401, 403):
            return f"{endpoint} refused the request: {self}; check {endpoint.key}"
        if self.status == 404:
            return f"{endpoint} refused the request: {self}; {endpoint.advise_name()}"
        if self.status == 429:
            return f"{endpoint} takes no more requests now: {self}, after {attempts} attempts; {LATER}"
        if self.status == 529 or self.status == 503:
            return f"{endpoint} is overloaded: {self}, after {attempts} attempts; {LATER}"
        if self.status >= 500:
            return f"{endpoint} failed: {self}, after {attempts} attempts; {LATER}"
        if _FILTERED.search(f"{self.kind} {self.message}"):
            return f"the model refused: {self.message}; {REFUSED}"
        return f"{endpoint} refused the request: {self}"


LATER: Final = "try again later, or name a model that goes on: --fallback PROVIDER:MODEL"
