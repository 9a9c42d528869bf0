"""A server's own credentials are taken out of whatever it answers: it may echo what it was sent. Pure."""

import json
from collections.abc import Iterable
from typing import Any, Final

MARK: Final = "[CREDENTIAL REDACTED]"


def redact_text(text: str, values: Iterable[str]) -> str:
    """The text without these values; it is the very same object where none is in it."""
    for value in values:
        if value in text:
            text = text.replace(value, MARK)
    return text


def redact_excerpt(text: str, values: Iterable[str], *, most: int) -> str:
    """The beginning of a text without these values: one that the end would cut in two is not left there by half."""
    return redact_text(text, values)[:most]


def redact_json(value: Any, values: Iterable[str], *, text: str | None = None) -> Any:
    """JSON without these values, in keys and numbers too; it is the very same object where none is in it.

    `text` is the JSON as text, where the caller has it.
    """
    values = tuple(value for value in values if value)
    if not values:
        return value
    text = json.dumps(value) if text is None else text
    # a look at the whole is much cheaper than one at each part
    if any(spelling in text for each in values for spelling in _spellings(each)):
        return _clean(value, values)
    return value


def _spellings(value: str) -> Iterable[str]:
    return value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]


def _clean(value: Any, values: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact_text(value, values)
    if isinstance(value, dict):
        return {redact_text(key, values): _clean(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_clean(each, values) for each in value]
    if isinstance(value, int | float) and any(each in json.dumps(value) for each in values):
        return MARK
    return value
