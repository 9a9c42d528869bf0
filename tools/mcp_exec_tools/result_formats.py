"""Formats in which servers wrap a value in text. An overlay names the format of a tool's results."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_HEAD: Final = 2000
"""Characters in which the boundary's name must occur first."""
_BOUNDARY: Final = re.compile(r"<(untrusted-data-[0-9A-Za-z-]{1,64})>")


def read_result(format_name: str, value: Any) -> Any:
    """Return the value that a result contains, or the result itself if it does not have the format."""
    reader = FORMATS.get(format_name)
    return value if reader is None else reader(value)


def _read_untrusted_data(value: Any) -> Any:
    """Return the JSON between the boundaries that Supabase's server puts around data, which warn models.

    The boundaries have a random name, and the JSON is a single line, so text in the data can't end it. The server
    sends the text alone, or as the only field `result` of an object.
    """
    text = value.get("result") if isinstance(value, Mapping) and value.keys() == {"result"} else value
    if not isinstance(text, str) or (boundary := _BOUNDARY.search(text, 0, _HEAD)) is None:
        return value
    opening, closing = f"<{boundary[1]}>\n", f"</{boundary[1]}>"
    start = text.find(opening)
    end = text.rfind(closing)
    if start < 0 or end < start:
        return value
    try:
        return json.loads(text[start + len(opening) : end])
    except (ValueError, RecursionError):
        return value


def _read_only_list(value: Any) -> Any:
    """Return the only list among the fields of an object: `{"tables": [...], "advisory": "..."}`."""
    lists = [field for field in value.values() if isinstance(field, list)] if isinstance(value, Mapping) else []
    return lists[0] if len(lists) == 1 else value


FORMATS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "only_list": _read_only_list,
    "untrusted_data": _read_untrusted_data,
}
"""The reader of each format."""
