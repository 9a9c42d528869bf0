"""A server's own credentials are taken out of whatever it answers: it may echo what it was sent. Pure."""

import json
from collections.abc import Iterable
from typing import Any, Final

MARK: Final = "[CREDENTIAL REDACTED]"


def without(text: str, values: Iterable[str]) -> str:
    """JSON text, or any other, without these values; it is the very same object where none is in it."""
    for value in values:
        escaped = json.dumps(value)[1:-1]
        if escaped in text:
            text = text.replace(escaped, MARK)
        if value != escaped and value in text:
            text = text.replace(value, MARK)
    return text


def clean(value: Any, values: Iterable[str]) -> Any:
    """JSON without these values; it is the very same object where none is in it."""
    values = tuple(values)
    if not values:
        return value
    text = json.dumps(value)
    found = without(text, values)
    return value if found is text else json.loads(found)
