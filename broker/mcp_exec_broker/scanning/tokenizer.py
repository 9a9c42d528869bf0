"""Tokens that replace personal data: `[EMAIL_1]` in the sandbox, the address itself at the tool."""

import re
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from cachetools import TTLCache

_TOKEN: Final = re.compile(r"\[[A-Z]{3,8}_[0-9]{1,6}\]")
_KEEP_SECONDS: Final = 3600.0
_MAX_TOKENIZERS: Final = 2000

Original = str | int
"""The value behind a token: a text, or a whole number."""


class Tokenizer:
    """Tokens of one execution. If it is full, further personal data is redacted irreversibly."""

    def __init__(self, *, max_values: int = 10_000, max_bytes: int = 4 * 1024 * 1024) -> None:
        self._values_left = max_values
        self._bytes_left = max_bytes
        self._tokens: dict[tuple[str, Original], str] = {}
        self._values: dict[str, Original] = {}
        self._numbers: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._values)

    def tokenize(self, kind: str, value: Original) -> str | None:
        """Return the token of a value, always the same one, or None if the tokenizer is full.

        `kind` is a word in capitals.
        """
        existing = self._tokens.get((kind, value))
        if existing is not None:
            return existing
        size = len(str(value).encode("utf-8", "surrogatepass"))
        if not self._values_left or size > self._bytes_left:
            return None
        self._values_left -= 1
        self._bytes_left -= size
        self._numbers[kind] += 1
        token = f"[{kind}_{self._numbers[kind]}]"
        self._tokens[kind, value] = token
        self._values[token] = value
        return token

    def has_token(self, kind: str, value: Original) -> bool:
        """Return whether the value has a token."""
        return (kind, value) in self._tokens

    def detokenize(self, value: Any) -> Any:
        """Return the JSON value with all tokens in its texts replaced by their values.

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

    def _detokenize_text(self, text: str) -> Original:
        if "[" not in text:
            return text
        if (value := self._values.get(text)) is not None:
            return value
        return _TOKEN.sub(lambda match: str(self._values.get(match[0], match[0])), text)


class TokenizerCache:
    """Tokenizers by execution UID, each kept until an hour after its last call, at most 2,000 of them."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._tokenizers: TTLCache[str, Tokenizer] = TTLCache(_MAX_TOKENIZERS, _KEEP_SECONDS, timer=clock)

    def get_or_create(self, uid: str) -> Tokenizer:
        """Return the execution's tokenizer; its first call creates it."""
        tokenizer = self._tokenizers.get(uid)
        if tokenizer is None:  # an empty tokenizer is falsy
            tokenizer = Tokenizer()
        self._tokenizers[uid] = tokenizer
        return tokenizer
