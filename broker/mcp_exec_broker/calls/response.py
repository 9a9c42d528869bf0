"""The answer to a call, built from a server's result: validated, redacted, scanned, encoded."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mcp_exec_broker.calls.call import Call, ResolvedTool
from mcp_exec_broker.calls.offload import INLINE_BYTES, Offload
from mcp_exec_broker.calls.result import (
    ContentBlocks,
    PythonValue,
    format_error_text,
    parse_value,
    read_output,
    weigh_texts,
)
from mcp_exec_broker.catalog.inferred_outputs import OutputInference
from mcp_exec_broker.catalog.sync import CatalogSync
from mcp_exec_broker.errors import ToolCallError, build_size_error, build_tool_error
from mcp_exec_broker.scanning.scanner import Scanner
from mcp_exec_broker.upstream.redaction import redact_json
from mcp_exec_broker.validation.output import OutputValidator, build_output_error
from mcp_exec_broker.validation.parameters import list_parameters

Result = TypeVar("Result")

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(kw_only=True, eq=False)
class ResponseBuilder:
    """Builds the last line of an answer. What takes long for a large result happens in a thread."""

    catalogs: CatalogSync
    inference: OutputInference
    validator: OutputValidator
    scanner: Scanner
    offload: Offload

    async def build_line(self, call: Call, resolved: ResolvedTool, result: dict[str, Any]) -> str:
        """Return the line for a result. Raises ToolCallError if the tool failed or the result breaks its schema.

        A tool that declares structured content and sends only other content is read as one that declares none.
        """
        max_bytes, scan = resolved.spec.limits.result_bytes, resolved.spec.scan
        if result.get("isError"):  # the SDK accepts texts such as "yes", too
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
            redacted, text = await self._run(call, lambda: _redact(value.value, call.secrets, max_bytes))
            scanned = (await self.scanner.scan_result(redacted, scan, call.tokenizer, size=len(text))).value
            if scanned is not redacted:
                text = await self._run(call, lambda: _encode(scanned))
            if self.inference.observe(resolved.server.key, resolved.tool, scanned, size=len(text)):
                self.catalogs.apply_inferred_outputs(resolved.server.key)
            return f'{{"type":"result","tool":{_encode(resolved.name)},"value":{text}}}\n'
        redacted, _ = await self._run(call, lambda: _redact([value.content, value.structured], call.secrets, max_bytes))
        content, structured = (await self.scanner.scan_result(redacted, scan, call.tokenizer)).value
        blocks = ContentBlocks(content=content, structured=structured, has_structured=value.has_structured)
        return await self._run(call, lambda: _encode(blocks.to_line(resolved.name)) + "\n")

    async def build_raw_line(self, call: Call, resolved: ResolvedTool, result: dict[str, Any]) -> str:
        """Return the line of a direct call: the result as MCP content, errors of the tool included.

        Raises ToolCallError if the result breaks its schema.
        """
        is_error = bool(result.get("isError"))
        if not is_error:
            declared = resolved.listing.declared.get(resolved.tool.name)
            parses_text = declared is not None and await self._may_parse_text(call, result)
            await self._validate(call, resolved, result, declared, parses_text=parses_text)
            if declared is not None:
                output = await self._run(call, lambda: read_output(result, parses_text=parses_text))
                if output is not None:
                    # clients refuse a result without the structured content that its tool declares
                    result = {**result, "structuredContent": output.value}
        content = result.get("content")
        kept: dict[str, Any] = {"content": content if isinstance(content, list) else []}
        if "structuredContent" in result:
            kept["structuredContent"] = result["structuredContent"]
        if is_error:
            kept["isError"] = True
        max_bytes = resolved.spec.limits.result_bytes
        redacted, text = await self._run(call, lambda: _redact(kept, call.secrets, max_bytes))
        scanned = (await self.scanner.scan_result(redacted, resolved.spec.scan, call.tokenizer, size=len(text))).value
        if is_error:
            call.tool_error = format_error_text(scanned)
        if scanned is not redacted:
            text = await self._run(call, lambda: _encode(scanned))
        return f'{{"type":"result","tool":{_encode(resolved.name)},"result":{text}}}\n'

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
        redacted, _ = await self._run(call, lambda: _redact(result, call.secrets, max_bytes))
        scanned = (await self.scanner.scan_result(redacted, resolved.spec.scan, call.tokenizer)).value
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
            scanned = await self.scanner.scan_result(error.message, resolved.spec.scan, call.tokenizer)
            error.message = scanned.value
            raise


def _redact(value: Any, secrets: list[str], max_bytes: int) -> tuple[Any, str]:
    """Return JSON without the server's credentials, and its text. Raises ToolCallError if it is too large."""
    text = _encode(value)
    if len(text) > max_bytes:
        raise build_size_error(max_bytes)
    redacted = redact_json(value, secrets, text=text)
    return (value, text) if redacted is value else (redacted, _encode(redacted))
