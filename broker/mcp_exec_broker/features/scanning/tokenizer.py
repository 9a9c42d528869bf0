"""Tokens that replace personal data: `[EMAIL_1_k3f9x2ab]` in the sandbox, the address itself at the tool.

Each token ends in random characters. So no token that an earlier process, another execution or a server's text
contains ever means another value: it is unknown, and a call with an unknown token is denied.
"""

import re
from base64 import b32encode
from collections import Counter, OrderedDict
from collections.abc import Callable
from secrets import token_bytes
from time import monotonic
from typing import Any, Final

from mcp_exec_api.constants import MAX_APPROVAL_SECONDS
from mcp_exec_broker.core.errors import ErrorReason, build_denial
from mcp_exec_broker.features.scanning.detectors import KINDS
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS

_TOKEN: Final = re.compile(rf"\[(?:{'|'.join(KINDS)})_[0-9]{{1,6}}_[a-z2-7]{{8}}\]")
_PREFIXES: Final = tuple(f"[{kind}_" for kind in KINDS)
_RANDOM_BYTES: Final = 5
"""Eight characters in base 32: a text contains a given token by chance once in 2**40."""
_KEEP_SECONDS: Final = MAX_GRANT_SECONDS + MAX_APPROVAL_SECONDS + 60.0
_VALUE_BYTES: Final = 400
"""Bytes that a value takes in memory in addition to its text."""
_MAX_TOTAL_BYTES: Final = 128 * 1024 * 1024

Original = str | int
"""The value behind a token: a text, or a whole number."""


class TokenMemory:
    """Bytes that the tokens of all executions may use."""

    def __init__(self, max_bytes: int = _MAX_TOTAL_BYTES) -> None:
        self.left = max_bytes


class Tokenizer:
    """Tokens of one execution. If it is full, further personal data is redacted irreversibly; no token is forgotten."""

    __slots__ = ("_bytes", "_bytes_left", "_memory", "_numbers", "_tokens", "_values", "_values_left")

    def __init__(
        self, *, max_values: int = 10_000, max_bytes: int = 4 * 1024 * 1024, memory: TokenMemory | None = None
    ) -> None:
        self._values_left = max_values
        self._bytes_left = max_bytes
        self._memory = memory or TokenMemory()
        self._bytes = 0
        self._tokens: dict[tuple[str, Original], str] = {}
        self._values: dict[str, Original] = {}
        self._numbers: Counter[str] | None = None

    def __len__(self) -> int:
        return len(self._values)

    def tokenize(self, kind: str, value: Original) -> str | None:
        """Return the token of a value, always the same one, or None if the tokenizer or its memory is full.

        `kind` is one of the kinds of personal data.
        """
        existing = self._tokens.get((kind, value))
        if existing is not None:
            return existing
        size = len(str(value).encode("utf-8", "surrogatepass"))
        if not self._values_left or size > self._bytes_left or size + _VALUE_BYTES > self._memory.left:
            return None
        self._values_left -= 1
        self._bytes_left -= size
        self._memory.left -= size + _VALUE_BYTES
        self._bytes += size + _VALUE_BYTES
        if self._numbers is None:
            self._numbers = Counter()
        self._numbers[kind] += 1
        token = f"[{kind}_{self._numbers[kind]}_{b32encode(token_bytes(_RANDOM_BYTES)).decode().lower()}]"
        self._tokens[kind, value] = token
        self._values[token] = value
        return token

    def has_token(self, kind: str, value: Original) -> bool:
        """Return whether the value has a token."""
        return (kind, value) in self._tokens

    def detokenize(self, value: Any) -> Any:
        """Return the JSON value with all known tokens in its texts replaced by their values.

        A text that consists of one token becomes that token's value, which may be a number.
        """
        if not self._values:
            return value
        if isinstance(value, str):
            return self._detokenize_text(value)
        if isinstance(value, list):
            return [self.detokenize(item) for item in value]
        if isinstance(value, dict):
            return {str(self._detokenize_text(name)): self.detokenize(item) for name, item in value.items()}
        return value

    def forget(self) -> None:
        """Drop all tokens, when no call can contain them any more, and return their memory."""
        self._memory.left += self._bytes
        self._bytes = self._values_left = self._bytes_left = 0
        self._tokens, self._values = {}, {}

    def _detokenize_text(self, text: str) -> Original:
        if "[" not in text:
            return text
        if (value := self._values.get(text)) is not None:
            return value
        return _TOKEN.sub(lambda match: str(self._values.get(match[0], match[0])), text)


def check_tokens(text: str) -> None:
    """Raise ToolCallError (UnknownToken) if arguments, as JSON text and detokenized, still contain a token."""
    if any(prefix in text for prefix in _PREFIXES) and (found := _TOKEN.search(text)) is not None:
        raise build_denial(
            ErrorReason.UNKNOWN_TOKEN,
            f"the arguments contain {found[0]}, which is no token of this execution: a token is valid in the execution "
            "that received it, as long as the broker runs; read the value again",
        )


class TokenizerCache:
    """Tokenizers by execution UID, each kept longer after its last call than its execution's grant is valid."""

    def __init__(self, *, clock: Callable[[], float] = monotonic, max_bytes: int = _MAX_TOTAL_BYTES) -> None:
        self._clock = clock
        self._memory = TokenMemory(max_bytes)
        self._tokenizers: OrderedDict[str, tuple[float, Tokenizer]] = OrderedDict()
        """When each is dropped, and the tokenizer, by that time."""

    def get_or_create(self, uid: str) -> Tokenizer:
        """Return the execution's tokenizer; its first call creates it."""
        now = self._clock()
        while self._tokenizers and next(iter(self._tokenizers.values()))[0] <= now:
            self._tokenizers.popitem(last=False)[1][1].forget()
        _, tokenizer = self._tokenizers.pop(uid, (0.0, None))
        if tokenizer is None:  # an empty tokenizer is falsy
            tokenizer = Tokenizer(memory=self._memory)
        self._tokenizers[uid] = now + _KEEP_SECONDS, tokenizer
        return tokenizer

    def close_execution(self, uid: str) -> None:
        """Drop the tokens of an execution that makes no more calls."""
        _, tokenizer = self._tokenizers.pop(uid, (0.0, None))
        if tokenizer is not None:
            tokenizer.forget()
