"""What a server answered, as the line that the sandbox gets: a value, without credentials, and looked through."""

import json
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_broker.calls.call import Call, ResolvedTool
from mcp_exec_broker.calls.result import ContentBlocks, PythonValue, format_error_text, parse_value
from mcp_exec_broker.catalog.inferred_outputs import OutputInference
from mcp_exec_broker.catalog.sync import CatalogSync
from mcp_exec_broker.errors import ToolCallError, build_size_error, build_tool_error
from mcp_exec_broker.scanning.scanner import Scanner
from mcp_exec_broker.upstream.redaction import redact_json
from mcp_exec_broker.validation.output import OutputValidator
from mcp_exec_broker.validation.parameters import list_parameters

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(kw_only=True, eq=False)
class ResponseBuilder:
    """Makes answers of results."""

    catalogs: CatalogSync
    inferences: OutputInference
    outputs: OutputValidator
    scanner: Scanner

    async def line(self, run: Call, target: ResolvedTool, raw: dict[str, Any]) -> str:
        """The line that answers the sandbox. Raises Failure where the tool failed, or its result is not as declared."""
        most, scan = target.spec.limits.result_bytes, target.spec.scan
        if raw.get("isError") is True:
            plain, _ = _cleaned(raw, run.secrets, most)
            found = (await self.scanner.result(plain, scan, run.vault)).value
            content = found.get("content")
            raise build_tool_error(
                format_error_text(found),
                parameters=list_parameters(target.tool),
                content=content if isinstance(content, list) else None,
            )
        await self._check(run, target, raw)
        value = parse_value(raw, target.known.declared.get(target.tool.name), modern=run.is_modern)
        if isinstance(value, PythonValue):
            plain, text = _cleaned(value.value, run.secrets, most)
            scanned = (await self.scanner.result(plain, scan, run.vault)).value
            if scanned is not plain:
                text = _encode(scanned)
            self.inferences.observe(target.server.key, target.tool, scanned, size=len(text))
            return f'{{"type":"result","tool":{_encode(target.name)},"value":{text}}}\n'
        parts, _ = _cleaned([value.content, value.structured], run.secrets, most)
        content, structured = (await self.scanner.result(parts, scan, run.vault)).value
        mixed = ContentBlocks(content=content, structured=structured, has_structured=value.has_structured)
        return _encode(mixed.line(target.name)) + "\n"

    async def _check(self, run: Call, target: ResolvedTool, raw: dict[str, Any]) -> None:
        """Raises Failure where the result is not what the tool declares."""
        known, name = target.known, target.tool.name
        try:
            self.outputs.check(target.name, raw, known.declared.get(name), catalog_hash=known.catalog.hash)
        except ToolCallError as failure:
            self.catalogs.refresh(target.server.key)  # it may declare something else by now
            failure.message = (await self.scanner.result(failure.message, target.spec.scan, run.vault)).value
            raise


def _cleaned(value: Any, secrets: list[str], most: int) -> tuple[Any, str]:
    """JSON and its text without the server's credentials. Raises Failure where it is larger than it may be."""
    text = _encode(value)
    if len(text) > most:
        raise build_size_error(most)
    found = redact_json(value, secrets, text=text)
    return (value, text) if found is value else (found, _encode(found))
