"""The result of a call as a server sent it: read as far as its meaning is clear, with notes on what was changed. Pure.

The tool has run by then, so a form that the protocol does not allow loses no value. Only what can mean several things
is refused, with the field and its type.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from pydantic import TypeAdapter, ValidationError

CHECKED: Final = "mcp-exec.dev/result"
"""Key of a result that is passed through the SDK: what `repair_result` returned."""
_BLOCK: Final[TypeAdapter[Any]] = TypeAdapter(types.ContentBlock)
_MAX_NOTES: Final = 4
_OLD_RESULT: Final = "toolResult"
"""Field of results before revision 2024-11-05."""
_WORDS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

Object = dict[str, Any]


class UnreadableResult(ValueError):
    """A result whose meaning is unclear. The text names the field and its type, and contains nothing of the server."""


def repair_result(result: Any, *, is_modern: bool) -> tuple[Object, list[str]]:
    """Return a result with valid content, and a note on each change. Raises UnreadableResult.

    `is_modern` is whether structured content may be any value, as since revision 2026-07-28.
    """
    if not isinstance(result, Mapping):
        raise UnreadableResult(f"it is {name_type(result)} and must be an object")
    notes: list[str] = []
    repaired: Object = {**result, "content": _repair_content(result, notes)}
    if "isError" in result:
        repaired["isError"] = _read_flag(result["isError"])
    structured = result.get("structuredContent")
    if not is_modern and structured is not None and not isinstance(structured, Mapping):
        kind = name_type(structured)
        notes.append(f"structuredContent is {kind}, which the server's revision of MCP does not allow; it is kept.")
    if "content" not in result and "structuredContent" not in result:
        _keep_fields(result, repaired, notes)
    return repaired, notes[:_MAX_NOTES]


def _repair_content(result: Mapping[str, Any], notes: list[str]) -> list[Any]:
    content = result.get("content")
    if content is None:
        return []
    if isinstance(content, (Mapping, str)):
        notes.append(f"content is {name_type(content)} and no list; it is kept as its only block.")
        content = [{"type": "text", "text": content} if isinstance(content, str) else content]
    if not isinstance(content, list):
        raise UnreadableResult(f"content is {name_type(content)} and must be a list")
    return [_repair_block(block, f"content[{place}]", notes) for place, block in enumerate(content)]


def _repair_block(block: Any, place: str, notes: list[str]) -> Any:
    try:
        _BLOCK.validate_python(block, by_name=False)
    except ValidationError:
        pass
    else:
        return block
    if isinstance(block, str):
        text, what = block, "is a text and no object"
    elif isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}  # its annotations are wrong
    else:
        text, what = json.dumps(block), "is of a form that MCP does not have"
    notes.append(f"{place} {what}; it is kept as a text.")
    return {"type": "text", "text": text}


def _read_flag(value: Any) -> bool:
    if value is None or isinstance(value, (bool, int)):
        return bool(value)
    word = _WORDS.get(value.lower()) if isinstance(value, str) else None
    if word is None:
        raise UnreadableResult(f"isError is {name_type(value)} and must be true or false")
    return word


def _keep_fields(result: Mapping[str, Any], repaired: Object, notes: list[str]) -> None:
    """Keep the value of a result that has neither content nor structured content."""
    if _OLD_RESULT in result:
        repaired["structuredContent"] = result[_OLD_RESULT]
        notes.append(f"The result has no content; {_OLD_RESULT} is its value.")
        return
    fields = {name: value for name, value in result.items() if name not in ("_meta", "isError", "resultType")}
    if fields:
        repaired["structuredContent"] = fields
        notes.append("The result has neither content nor structuredContent; its fields are its value.")


def name_type(value: Any) -> str:
    """Return the JSON type of a value, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "a text", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "an object")
