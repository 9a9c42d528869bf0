"""The answer to a call, built from a server's result: validated, converted, redacted, scanned, encoded.

Structured content takes precedence, even if it is falsy; text is parsed if it is a JSON object or list. A result that
is neither text nor structured stays a list of MCP content blocks, which the sandbox saves.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, TypeVar

from mcp_exec_broker.core.calls.call import INLINE_BYTES, Call, Offload, ResolvedTool
from mcp_exec_broker.core.catalog.entry import OutputInference
from mcp_exec_broker.core.catalog.sync import CatalogSync
from mcp_exec_broker.core.errors import ToolCallError, build_size_error, build_tool_error
from mcp_exec_broker.core.upstream.errors import redact_json
from mcp_exec_broker.core.validation.values import OutputValidator, build_output_error, list_parameters
from mcp_exec_common.util.weight import weigh_json

_WRAPPED: Final = "x-fastmcp-wrap-result"

Block = Mapping[str, Any]
Result = TypeVar("Result")
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


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


def _replace_not_finite(value: Any) -> tuple[Any, int]:
    """Return JSON with null in place of NaN and infinities, which it does not have, and their number."""
    root, count = [value], 0
    remaining: list[Any] = [root]
    while remaining:
        part = remaining.pop()
        for key, item in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(item, (dict, list)):
                remaining.append(item)
            elif isinstance(item, float) and not isfinite(item):
                part[key] = None  # the value of an entry changes, and no key
                count += 1
    return root[0], count


def _has_words(result: Mapping[str, Any]) -> bool:
    """Return whether the content of a result has anything but blank texts."""
    return any(not _is_text(block) or block["text"].strip() for block in _list_blocks(result))


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


@dataclass(kw_only=True, eq=False)
class ResponseBuilder:
    """Builds the last line of an answer. What takes long for a large result happens in a thread."""

    catalogs: CatalogSync
    inference: OutputInference
    validator: OutputValidator
    offload: Offload

    async def build_line(self, call: Call, resolved: ResolvedTool, result: dict[str, Any]) -> str:
        """Return the line for a result. Raises ToolCallError if the tool failed or the result breaks its schema.

        A tool that declares structured content and sends only other content is read as one that declares none.
        """
        max_bytes, scan = resolved.spec.limits.result_bytes, resolved.spec.scan
        if result.get("isError"):
            raise await self._build_error(call, resolved, result)
        declared = resolved.listing.declared.get(resolved.tool.name)
        if declared is not None and self._lacks_output(resolved, result, declared):
            result = {name: value for name, value in result.items() if name != "structuredContent"}
            declared = None
        parses_text = await self._may_parse_text(call, result)
        await self._validate(call, resolved, result, declared, parses_text=parses_text)
        value = await self._run(
            call, lambda: parse_value(result, declared, modern=call.is_modern, parses_text=parses_text)
        )
        if isinstance(value, PythonValue):
            redacted, text = await self._run(call, lambda: _redact(call, value.value, max_bytes))
            scanned = await call.scanner.scan_result(redacted, scan, size=len(text))
            if scanned is not redacted:
                text = await self._run(call, lambda: _encode(scanned))
            if self.inference.observe(resolved.server.key, resolved.tool, scanned, size=len(text)):
                self.catalogs.apply_inferred_outputs(resolved.server.key)
            return f'{{"type":"result","tool":{_encode(resolved.name)},"value":{text}{_format_notes(call)}}}\n'
        redacted, _ = await self._run(call, lambda: _redact(call, [value.content, value.structured], max_bytes))
        content, structured = await call.scanner.scan_result(redacted, scan)
        blocks = ContentBlocks(content=content, structured=structured, has_structured=value.has_structured)
        line = blocks.to_line(resolved.name) | ({"notes": call.notes} if call.notes else {})
        return await self._run(call, lambda: _encode(line) + "\n")

    async def build_raw_line(self, call: Call, resolved: ResolvedTool, result: dict[str, Any]) -> str:
        """Return the line of a direct call: the result as MCP content, errors of the tool included.

        Raises ToolCallError if the result breaks its schema.
        """
        is_error = bool(result.get("isError"))
        declared = None if is_error else resolved.listing.declared.get(resolved.tool.name)
        parses_text = declared is not None and await self._may_parse_text(call, result)
        if declared is not None:
            output = await self._run(call, lambda: read_output(result, parses_text=parses_text))
            if output is not None:
                # clients refuse a result without the structured content that its tool declares
                result = {**result, "structuredContent": output.value}
        if "structuredContent" in result:
            structured, count = await self._run(call, lambda: _replace_not_finite(result["structuredContent"]))
            result = {**result, "structuredContent": structured}
            if count:
                call.notes.append(f"JSON has no NaN and no infinity: {count} in structuredContent became null.")
        await self._validate(call, resolved, result, declared, parses_text=parses_text)
        content = result.get("content")
        kept: dict[str, Any] = {"content": content if isinstance(content, list) else []}
        if "structuredContent" in result:
            kept["structuredContent"] = result["structuredContent"]
        if is_error:
            kept["isError"] = True
            if not _has_words(result):
                kept["content"] = [{"type": "text", "text": format_error_text(result)}]
        max_bytes = resolved.spec.limits.result_bytes
        redacted, text = await self._run(call, lambda: _redact(call, kept, max_bytes))
        scanned = await call.scanner.scan_result(redacted, resolved.spec.scan, size=len(text))
        if is_error:
            call.tool_error = format_error_text(scanned)
        if scanned is not redacted:
            text = await self._run(call, lambda: _encode(scanned))
        return f'{{"type":"result","tool":{_encode(resolved.name)},"result":{text}{_format_notes(call)}}}\n'

    async def _run(self, call: Call, work: Callable[[], Result]) -> Result:
        return await self.offload.run(work, size=call.result_size)

    async def _may_parse_text(self, call: Call, result: dict[str, Any]) -> bool:
        """Return whether text may become values, whose memory is then held. A text that is too dense stays text.

        Raises ToolCallError (ResultTooLarge) if others hold the memory.
        """
        if "structuredContent" in result or call.result_size <= INLINE_BYTES:
            return True
        lease = call.request.lease
        limit = lease.flight.limits.per_execution - lease.held
        weight = await self._run(call, lambda: weigh_texts(result, limit=limit))
        if weight > limit:
            return False
        await lease.acquire_answer(weight)
        return True

    async def _build_error(self, call: Call, resolved: ResolvedTool, result: dict[str, Any]) -> ToolCallError:
        max_bytes = resolved.spec.limits.result_bytes
        redacted, _ = await self._run(call, lambda: _redact(call, result, max_bytes))
        scanned = await call.scanner.scan_result(redacted, resolved.spec.scan)
        content = scanned.get("content")
        return build_tool_error(
            format_error_text(scanned),
            parameters=list_parameters(resolved.tool),
            content=content if isinstance(content, list) else None,
        )

    def _lacks_output(self, resolved: ResolvedTool, result: dict[str, Any], declared: Mapping[str, Any]) -> bool:
        """Return whether a result has content, but none of the structured content that its tool declares."""
        if result.get("structuredContent") is not None or not result.get("content"):
            return False
        if "structuredContent" not in result:
            return True
        catalog = resolved.listing.catalog.hash
        return not self.validator.accepts(resolved.name, None, declared, catalog_hash=catalog)

    async def _validate(
        self,
        call: Call,
        resolved: ResolvedTool,
        result: dict[str, Any],
        schema: Mapping[str, Any] | None,
        *,
        parses_text: bool,
    ) -> None:
        """Raise ToolCallError if the result breaks the output schema that the tool declares."""
        if schema is None:
            return
        try:
            output = await self._run(call, lambda: read_output(result, parses_text=parses_text))
            if output is None:
                raise build_output_error(resolved.name, "it has no structured content")
            catalog = resolved.listing.catalog.hash
            self.validator.validate(resolved.name, output.value, schema, catalog_hash=catalog)
        except ToolCallError as error:
            self.catalogs.refresh(resolved.server.key)  # the tool may declare another schema by now
            error.message = await call.scanner.scan_result(error.message, resolved.spec.scan)
            raise


def _format_notes(call: Call) -> str:
    """Return the notes of a call as a further field of its line."""
    return f',"notes":{_encode(call.notes)}' if call.notes else ""


def _redact(call: Call, value: Any, max_bytes: int) -> tuple[Any, str]:
    """Return JSON without the server's credentials, and its text. Raises ToolCallError if it is too large."""
    text = _encode(value)
    if len(text) > max_bytes:
        raise build_size_error(max_bytes)
    redacted = redact_json(value, call.secrets, text=text)
    if redacted is value:
        return value, text
    call.is_redacted = True
    return redacted, _encode(redacted)
