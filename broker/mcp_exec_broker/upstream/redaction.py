"""Removes a server's own credentials from its answers, which may echo requests. Pure."""

import json
from collections.abc import Iterable
from typing import Any, Final

MARK: Final = "[CREDENTIAL REDACTED]"


def redact_text(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets; the same object if it contains none."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, MARK)
    return text


def redact_excerpt(text: str, secrets: Iterable[str], *, max_chars: int) -> str:
    """Return the beginning of a text without the secrets, redacted before the cut so that no half secret remains."""
    return redact_text(text, secrets)[:max_chars]


def redact_output(text: str, secrets: Iterable[str], *, min_length: int, max_chars: int) -> str:
    """Return the beginning of a line of output without the secrets, nor a line of a secret that has several.

    Lines of secrets shorter than `min_length` remain: they are words rather than secrets.
    """
    lines = {line.strip() for secret in secrets for line in (secret, *secret.splitlines(), *secret.split("\\n"))}
    found = sorted((line for line in lines if len(line) >= min_length), key=len, reverse=True)
    return redact_text(text, found)[:max_chars]


def redact_json(value: Any, secrets: Iterable[str], *, text: str | None = None) -> Any:
    """Return JSON without the secrets, in keys and numbers too; the same object if it contains none.

    `text` is the value as JSON text, if the caller has it.
    """
    secrets = tuple(secret for secret in secrets if secret)
    if not secrets:
        return value
    text = json.dumps(value) if text is None else text
    # one search of the whole text is much cheaper than a search of each part
    if any(spelling in text for secret in secrets for spelling in _list_spellings(secret)):
        return _redact(value, secrets)
    return value


def _list_spellings(secret: str) -> Iterable[str]:
    return secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]


def _redact(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact_text(value, secrets)
    if isinstance(value, dict):
        return {redact_text(name, secrets): _redact(member, secrets) for name, member in value.items()}
    if isinstance(value, list):
        return [_redact(item, secrets) for item in value]
    if isinstance(value, int | float) and any(secret in json.dumps(value) for secret in secrets):
        return MARK
    return value
