"""Conversion of an MCP result to a Python value. Pure.

Structured content takes precedence, even if it is falsy; text is parsed if it is a JSON object or list. A result that
is neither text nor structured stays a list of MCP content blocks, which the sandbox saves.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_common.util.json_weight import weigh_json

_WRAPPED: Final = "x-fastmcp-wrap-result"

Block = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PythonValue:
    """A result that the wrapper returns as it is."""

    value: Any

    def to_line(self, tool: str) -> dict[str, Any]:
        """Return the last line of the answer."""
        return {"type": "result", "tool": tool, "value": self.value}


@dataclass(frozen=True, kw_only=True)
class ContentBlocks:
    """A result with images, audio, files or links."""

    content: Sequence[Any]
    structured: Any = None
    has_structured: bool = False

    def to_line(self, tool: str) -> dict[str, Any]:
        """Return the last line of the answer."""
        line = {"type": "result", "tool": tool, "content": self.content}
        return line | ({"structured": self.structured} if self.has_structured else {})


def parse_value(
    result: Mapping[str, Any],
    output_schema: Mapping[str, Any] | None,
    *,
    modern: bool,
    parses_text: bool = True,
) -> PythonValue | ContentBlocks:
    """Convert a `tools/call` result as on the wire. `output_schema` is the schema that the server declared.

    `parses_text` is whether text may become values: `weigh_texts` says how much memory these take. `modern` is whether
    the session uses the protocol of 2026-07-28 or later. Before, structured content was an object, and some servers
    sent null for none.
    """
    content = _list_blocks(result)
    structured, has_structured = result.get("structuredContent"), "structuredContent" in result
    if structured is None and not modern and output_schema is None:
        has_structured = False
    if has_structured and all(_is_text(block) for block in content):
        return PythonValue(value=_unwrap(structured, output_schema))
    if content and all(_is_text(block) for block in content):
        texts = [block["text"] for block in content]
        return PythonValue(value=_parse_texts(texts) if parses_text else "\n".join(texts))
    if not content:
        return PythonValue(value=None)
    return ContentBlocks(content=content, structured=structured, has_structured=has_structured)


def weigh_texts(result: Mapping[str, Any], *, limit: int) -> int:
    """Return an upper bound of the memory that the values in a result's texts take, or a number above `limit`."""
    weight = 0
    for block in _list_blocks(result):
        if _is_text(block) and weight <= limit and _may_be_json(block["text"]):
            weight += weigh_json(block["text"].encode("utf-8", "surrogatepass"), limit=limit - weight)
    return weight


def read_output(result: Mapping[str, Any], *, parses_text: bool = True) -> PythonValue | None:
    """Return the value that the output schema describes: the structured content, or else the parsed text."""
    if "structuredContent" in result:
        return PythonValue(value=result["structuredContent"])
    value = parse_value(result, None, modern=True, parses_text=parses_text)
    return value if isinstance(value, PythonValue) else None


def format_error_text(result: Mapping[str, Any]) -> str:
    """Return the message of a result with `isError`."""
    texts = [block["text"] for block in _list_blocks(result) if _is_text(block)]
    if any(text.strip() for text in texts):
        return "\n".join(texts)
    structured = result.get("structuredContent")
    return json.dumps(structured)[:1000] if structured is not None else "the tool failed without a message"


def _list_blocks(result: Mapping[str, Any]) -> list[Block]:
    content = result.get("content")
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _is_text(block: Block) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _unwrap(structured: Any, schema: Mapping[str, Any] | None) -> Any:
    """Remove the `{"result": ...}` that SDKs put around values other than objects, as their schemas declare."""
    if schema is None or not isinstance(structured, dict) or structured.keys() != {"result"}:
        return structured
    properties = schema.get("properties")
    is_wrapper = (
        isinstance(properties, Mapping) and properties.keys() == {"result"} and schema.get("required") == ["result"]
    )
    return structured["result"] if schema.get(_WRAPPED) or is_wrapper else structured


def _parse_texts(texts: Sequence[str]) -> Any:
    if len(texts) == 1:
        is_json, value = _parse_text(texts[0])
        return value if is_json else texts[0]
    parts = [_parse_text(text) for text in texts]
    if all(is_json for is_json, _ in parts):
        return [value for _, value in parts]
    joined = "\n".join(texts)
    is_json, value = _parse_text(joined)
    return value if is_json else joined


def _parse_text(text: str) -> tuple[bool, Any]:
    """Return whether the text is a JSON object or list, and its value. A bare number or word stays text."""
    if not _may_be_json(text):
        return False, None
    try:
        return True, json.loads(text, parse_constant=_reject_constant, object_pairs_hook=_build_object)
    except (ValueError, RecursionError):
        return False, None


def _may_be_json(text: str) -> bool:
    """Return whether a text begins like an object or a list."""
    return text.lstrip()[:1] in ("{", "[")


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. A text whose object has a key twice stays text, which loses nothing."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a key twice")
    return members


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not valid JSON")
