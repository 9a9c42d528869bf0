"""Sizes of results in tokens. Clients cut or refuse a result whose content is larger than their limit."""

import json
import string
from dataclasses import dataclass
from typing import Any, Final

DEFAULT_TOKENS: Final = 25_000
"""Tokens of one result, in all forms of its content."""
MIN_TOKENS: Final = 2_000
MAX_TOKENS: Final = 100_000
_CHARACTERS: Final = 20_000
"""Characters of the text of a result of DEFAULT_TOKENS."""
_WORD_BYTES: Final = (string.ascii_letters + " ").encode()
_ASCII_BYTES: Final = bytes(range(128))
_LETTERS_PER_TOKEN: Final = 3.0
_SYMBOLS_PER_TOKEN: Final = 1.6
"""Digits and punctuation."""
_TOKENS_PER_CHARACTER: Final = 1.3
"""Of a character outside ASCII."""


@dataclass(frozen=True, kw_only=True)
class TokenBudget:
    """How many tokens each form of a result's content may have."""

    tokens: int = DEFAULT_TOKENS
    """Tokens of the whole result."""

    @property
    def text(self) -> int:
        """Tokens of the text."""
        return self.tokens * 9 // 25

    @property
    def structured(self) -> int:
        """Tokens of the structured content."""
        return self.tokens * 11 // 25

    @property
    def links(self) -> int:
        """Tokens of links to files."""
        return self.tokens * 4 // 25

    @property
    def characters(self) -> int:
        """Characters of the text."""
        return _CHARACTERS * self.tokens // DEFAULT_TOKENS


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has; for most texts, more than models count."""
    raw = text.encode("utf-8", "replace")
    rest = raw.translate(None, delete=_WORD_BYTES)
    foreign = rest.translate(None, delete=_ASCII_BYTES)
    letters, symbols = len(raw) - len(rest), len(rest) - len(foreign)
    others = len(text) - letters - symbols
    return int(letters / _LETTERS_PER_TOKEN + symbols / _SYMBOLS_PER_TOKEN + others * _TOKENS_PER_CHARACTER) + 1


def estimate_json(value: Any) -> int:
    """Return about how many tokens a value has as JSON."""
    return estimate_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def cut_to_tokens(text: str, tokens: int) -> str:
    """Return the beginning of a text that has at most so many tokens."""
    while (found := estimate_tokens(text)) > max(tokens, 1) and text:
        text = text[: min(len(text) - 1, len(text) * tokens // found)]
    return text
