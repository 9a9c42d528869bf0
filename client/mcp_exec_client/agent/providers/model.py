"""Requests and replies of all providers. Content has the form of the Messages API's blocks."""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, Self, TypeVar

from mcp_exec_tools.text import estimate_tokens

MAX_ANSWER_CHARACTERS: Final = 4_000_000
"""Most characters of one answer, more than any model writes."""
Block = dict[str, Any]
"""A message, a content block or a tool definition as JSON."""
PassText = Callable[[str], Awaitable[None]]
StopReason = Literal["end", "tool_use", "pause", "max_tokens", "refusal", "filtered", "context_full"]
"""`pause`: the model continues if the request is sent again with its answer so far. `filtered`: the API ended the
answer because of its content."""
Counted = Literal["provider", "estimate"]
_MESSAGE: Final = 4
"""Tokens around each message."""
_UNPAIRED: Final = re.compile("[\ud800-\udfff]")
_T = TypeVar("_T")
UNREADABLE: Final = "arguments_that_are_no_json_object"
"""Only field of a call's input whose arguments are not a JSON object: the text that the model wrote."""


async def ignore_line(line: str) -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class TokenCounts:
    """Tokens of requests and answers."""

    input: int = 0
    """Input without what was read from or written to the cache."""
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    counted: Counted = "provider"
    """`estimate` if the provider did not count all of it."""

    def __add__(self, other: Self) -> "TokenCounts":
        exact = self.counted == other.counted == "provider"
        return TokenCounts(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            counted="provider" if exact else "estimate",
        )

    @property
    def total(self) -> int:
        """All tokens, cached ones included."""
        return self.input + self.output + self.cache_read + self.cache_write


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One request: the whole conversation."""

    system: str
    messages: Sequence[Block]
    tools: Sequence[Block] = ()
    max_tokens: int = 32_000
    """Most tokens of the answer, thoughts included."""
    notify: PassText = ignore_line
    """Receives a line when the request is sent again, and when the model does not take a part of it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "system", make_encodable(self.system))
        object.__setattr__(self, "messages", make_encodable(list(self.messages)))


@dataclass(frozen=True, kw_only=True)
class ModelReply:
    """One answer of a model."""

    content: list[Block]
    stop: StopReason
    tokens: TokenCounts = field(default_factory=TokenCounts)

    @property
    def text(self) -> str:
        """All text of the answer."""
        return "".join(block["text"] for block in self.content if block.get("type") == "text")

    @property
    def tool_uses(self) -> list[Block]:
        """Uses of tools that need a result."""
        return [block for block in self.content if block.get("type") == "tool_use"]


class ModelProvider(Protocol):
    """Access to one model."""

    @property
    def model(self) -> str:
        """Name of the model."""

    @property
    def supports_tools(self) -> bool:
        """Whether the model can use tools. Code of one that cannot is taken from fenced blocks of its answers."""

    async def reply(self, request: ModelRequest, *, on_text: PassText) -> ModelReply:
        """Return the model's answer; its text is passed on as it arrives. Raises ModelError.

        ToolsRefused says that `supports_tools` is false from now on.
        """

    async def count_tokens(self, request: ModelRequest) -> TokenCounts:
        """Return the input tokens of a request, which is not sent. Raises ModelError."""


def make_encodable(value: _T) -> _T:
    """Return JSON without halves of characters, which UTF-8 does not have and some models and terminals send."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        replaced: _T = json.loads(_UNPAIRED.sub("\N{REPLACEMENT CHARACTER}", json.dumps(value, ensure_ascii=False)))
        return replaced
    return value


def estimate_input(request: ModelRequest) -> int:
    """Return the estimated input tokens of a request."""
    tools = sum(estimate_tokens(json.dumps(tool, ensure_ascii=False)) for tool in request.tools)
    messages = sum(_MESSAGE + _estimate_content(message["content"]) for message in request.messages)
    return estimate_tokens(request.system) + tools + messages


def estimate_reply(content: list[Block]) -> int:
    """Return the estimated output tokens of an answer."""
    return _estimate_content(content)


def _estimate_content(content: str | list[Block]) -> int:
    if isinstance(content, str):
        return estimate_tokens(content)
    return sum(
        estimate_tokens(block["text"] if block.get("type") == "text" else json.dumps(block, ensure_ascii=False))
        for block in content
    )
