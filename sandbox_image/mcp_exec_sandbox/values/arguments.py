"""JSON of the arguments of a tool: the forms of results, but nothing is changed. What JSON can't express is refused."""

import json
from collections.abc import Mapping
from typing import Any

from mcp_exec_sandbox.values import changes
from mcp_exec_sandbox.values.changes import UNKNOWN, ValueChange, ValueRefused
from mcp_exec_sandbox.values.forms import find_form, is_of_imported
from mcp_exec_sandbox.values.walk import Walk
from mcp_exec_tools.text import format_path

_MAX_INTEGER_BITS = 14_000
"""Size of an integer whose digits every Python reads: 4300 of them."""
_KEYS = (str, int, float, type(None))


def encode_as_json(arguments: Mapping[str, Any], limit: int) -> str | None:
    """Encode arguments as a JSON object, or return None if it has more than `limit` bytes.

    Raises:
        ValueRefused: a value has no JSON that means the same. The text has its path and what to pass instead.
    """
    text = _encode_plain(arguments)
    if text is None:
        walk = _ArgumentWalk(limit)
        plain = walk.convert(arguments)
        if walk.full:
            return None
        text = _encode(plain)
    # A character has up to four bytes, so only texts near the limit are encoded to count.
    return text if 4 * len(text) <= limit or len(text.encode()) <= limit else None


def _encode(plain: Any) -> str:
    return json.dumps(plain, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _encode_plain(arguments: Mapping[str, Any]) -> str | None:
    """Return the JSON of plain arguments, as most are, or None if they need the walk. It takes a tenth of the time."""
    try:
        text = _encode(arguments)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return text if _is_plain(arguments) else None


def _is_plain(value: object) -> bool:
    """Return whether all keys are texts, and no named tuple is there. The value has JSON, so it contains no cycle."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                return False
            waiting += item.values()
        elif type(item) is list or type(item) is tuple:
            waiting += item
        elif isinstance(item, (list, tuple)):
            return False
    return True


class _ArgumentWalk(Walk):
    """A conversion that refuses what it would have to change."""

    max_items = 100_000

    def report(self, change: ValueChange, what: str = "") -> None:
        if change.refusal:
            place = format_path(self._path) or "the arguments"
            raise ValueRefused(f"{place} {change.refusal.replace('{what}', what)}")

    def _find_form(self, value: Any) -> Any:
        return (
            self._find_number(value) if is_of_imported(value, (("decimal", "Decimal"),)) else super()._find_form(value)
        )

    def _find_number(self, value: Any) -> int | float:
        """Return the number of a decimal, which parameters that are amounts need."""
        number = int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
        if number == number and number != value:
            self.report(changes.INEXACT_DECIMAL)
        return number

    def _long_integer(self, value: int) -> Any:
        if value.bit_length() > _MAX_INTEGER_BITS:
            self.report(changes.HUGE_INTEGER, str(value.bit_length()))
        return self._pay(value, value.bit_length() // 4)

    def _convert_key(self, key: object) -> str:
        form = key if isinstance(key, _KEYS) else find_form(key, self._left)
        if form is UNKNOWN or not isinstance(form, _KEYS):
            self.report(changes.NO_TEXT_KEY, type(key).__name__)
        return super()._convert_key(key)
