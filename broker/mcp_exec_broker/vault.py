"""Tokens that stand for personal data: `[EMAIL_1]` in the sandbox, the address itself at the tool."""

from typing import Any


class Vault:
    """One execution's tokens. Bounded: when it is full, what is found is redacted for good."""

    def __init__(self, *, max_values: int = 10_000, max_bytes: int = 4 * 1024 * 1024) -> None: ...

    def token(self, kind: str, value: str) -> str | None:
        """The token of a value, the same each time; None where the vault is full."""

    def put_back(self, value: Any) -> Any:
        """JSON with the values in the place of their tokens, wherever in a text they stand."""
