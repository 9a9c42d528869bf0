"""Tokens that stand for personal data: `[EMAIL_1]` in the sandbox, the address itself at the tool."""

import re
from collections import Counter
from typing import Any, Final

_TOKEN: Final = re.compile(r"\[[A-Z]{3,8}_[0-9]{1,6}\]")

Original = str | int
"""What a token stands for: a text, or a whole number that is one."""


class Tokenizer:
    """One execution's tokens. Bounded: when it is full, what is found is redacted for good."""

    def __init__(self, *, max_values: int = 10_000, max_bytes: int = 4 * 1024 * 1024) -> None:
        self._left = max_values
        self._bytes_left = max_bytes
        self._tokens: dict[tuple[str, Original], str] = {}
        self._values: dict[str, Original] = {}
        self._numbers: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._values)

    def token(self, kind: str, value: Original) -> str | None:
        """The token of a value, the same each time; None where the vault is full.

        `kind` is a word in capitals.
        """
        known = self._tokens.get((kind, value))
        if known is not None:
            return known
        size = len(str(value).encode("utf-8", "surrogatepass"))
        if not self._left or size > self._bytes_left:
            return None
        self._left -= 1
        self._bytes_left -= size
        self._numbers[kind] += 1
        token = f"[{kind}_{self._numbers[kind]}]"
        self._tokens[kind, value] = token
        self._values[token] = value
        return token

    def knows(self, kind: str, value: Original) -> bool:
        """Whether the value has a token."""
        return (kind, value) in self._tokens

    def put_back(self, value: Any) -> Any:
        """JSON with the values in the place of their tokens, wherever in a text they stand.

        A text that is a token and no more becomes what it stands for, which may be a number.
        """
        if not self._values:
            return value
        if isinstance(value, str):
            return self._texts(value)
        if isinstance(value, list):
            return [self.put_back(each) for each in value]
        if isinstance(value, dict):
            return {str(self._texts(name)): self.put_back(each) for name, each in value.items()}
        return value

    def _texts(self, text: str) -> Original:
        if "[" not in text:
            return text
        if (whole := self._values.get(text)) is not None:
            return whole
        return _TOKEN.sub(lambda found: str(self._values.get(found[0], found[0])), text)
