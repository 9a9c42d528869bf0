"""What a tool's result is in Python: the value rule. Pure.

Structured content comes first, falsy values too; text is parsed where it is an object or a list; what is neither text
nor structured stays as MCP's content blocks, for the sandbox to save.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_WRAPPED: Final = "x-fastmcp-wrap-result"

Block = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PythonValue:
    """A result that is ready for the wrapper to return."""

    value: Any

    def line(self, tool: str) -> dict[str, Any]:
        """The last line of the answer."""
        return {"type": "result", "tool": tool, "value": self.value}


@dataclass(frozen=True, kw_only=True)
class ContentBlocks:
    """A result with images, sounds, files or links in it."""

    content: Sequence[Any]
    structured: Any = None
    has_structured: bool = False

    def line(self, tool: str) -> dict[str, Any]:
        """The last line of the answer."""
        line = {"type": "result", "tool": tool, "content": self.content}
        return line | ({"structured": self.structured} if self.has_structured else {})


def parse_value(
    result: Mapping[str, Any], output_schema: Mapping[str, Any] | None, *, modern: bool
) -> PythonValue | ContentBlocks:
    """What a `tools/call` result, as on the wire, is for code. `output_schema` is what the server declared.

    `modern` is whether the protocol of 2026-07-28 or later is spoken: before, structured content was an object, and
    null is how some servers say that there is none.
    """
    content = _blocks(result)
    structured, has_structured = result.get("structuredContent"), "structuredContent" in result
    if structured is None and not modern and output_schema is None:
        has_structured = False
    if has_structured and all(_is_text(block) for block in content):
        return PythonValue(value=_unwrapped(structured, output_schema))
    if content and all(_is_text(block) for block in content):
        return PythonValue(value=_of_texts([block["text"] for block in content]))
    if not content:
        return PythonValue(value=None)
    return ContentBlocks(content=content, structured=structured, has_structured=has_structured)


def format_error_text(result: Mapping[str, Any]) -> str:
    """What a result that is an error says, for people."""
    texts = [block["text"] for block in _blocks(result) if _is_text(block)]
    if any(text.strip() for text in texts):
        return "\n".join(texts)
    structured = result.get("structuredContent")
    return json.dumps(structured)[:1000] if structured is not None else "the tool failed, and did not say why"


def _blocks(result: Mapping[str, Any]) -> list[Block]:
    content = result.get("content")
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _is_text(block: Block) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _unwrapped(structured: Any, schema: Mapping[str, Any] | None) -> Any:
    """SDKs wrap what is no object as `{"result": ...}`, and say so in the schema."""
    if schema is None or not isinstance(structured, dict) or structured.keys() != {"result"}:
        return structured
    properties = schema.get("properties")
    alone = isinstance(properties, Mapping) and properties.keys() == {"result"} and schema.get("required") == ["result"]
    return structured["result"] if schema.get(_WRAPPED) or alone else structured


def _of_texts(texts: Sequence[str]) -> Any:
    if len(texts) == 1:
        found, parsed = _parsed(texts[0])
        return parsed if found else texts[0]
    parts = [_parsed(text) for text in texts]
    if all(found for found, _ in parts):
        return [parsed for _, parsed in parts]
    joined = "\n".join(texts)
    found, parsed = _parsed(joined)
    return parsed if found else joined


def _parsed(text: str) -> tuple[bool, Any]:
    """Whether the text is a JSON object or list, and what it holds. A bare number or word stays text."""
    if text.lstrip()[:1] not in ("{", "["):
        return False, None
    try:
        return True, json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return False, None


def _no_json(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
