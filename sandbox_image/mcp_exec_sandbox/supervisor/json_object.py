"""Strict parsing of JSON objects from clients and from the runner."""

import json
from collections.abc import Collection
from typing import Any


class InvalidRequest(Exception):
    """The request's body can't be accepted. The text names the field."""


def parse_object(text: bytes) -> dict[str, Any] | None:
    """Parse a strict JSON object (no NaN). Return None for any other input, and never raise."""
    try:
        value = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def parse_body(body: bytes, fields: Collection[str]) -> dict[str, Any]:
    """Parse a body with no other fields than `fields`.

    Raises:
        InvalidRequest: the body is not a JSON object or has an unknown field.
    """
    values = parse_object(body)
    if values is None:
        raise InvalidRequest("the body must be a JSON object")
    for name in values:
        if name not in fields:
            raise InvalidRequest(f"{name[:100]}: unknown field")
    return values


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
