"""What a server answered, as the line that the sandbox gets: a value, without credentials, and looked through."""

import json
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_broker.calls.call import Run, Target
from mcp_exec_broker.calls.result import Content, Value, error_text, value_of
from mcp_exec_broker.catalog.inferred_outputs import Inferences
from mcp_exec_broker.catalog.sync import Catalogs
from mcp_exec_broker.errors import Failure, too_large, tool_failed
from mcp_exec_broker.scanning.scanner import Scanner
from mcp_exec_broker.upstream.redaction import clean
from mcp_exec_broker.validation.output import Outputs
from mcp_exec_broker.validation.parameters import parameters_of

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(kw_only=True, eq=False)
class Answers:
    """Makes answers of results."""

    catalogs: Catalogs
    inferences: Inferences
    outputs: Outputs
    scanner: Scanner

    async def line(self, run: Run, target: Target, raw: dict[str, Any]) -> str:
        """The line that answers the sandbox. Raises Failure where the tool failed, or its result is not as declared."""
        most, scan = target.spec.limits.result_bytes, target.spec.scan
        if raw.get("isError") is True:
            plain, _ = _cleaned(raw, run.secrets, most)
            found = (await self.scanner.result(plain, scan, run.vault)).value
            content = found.get("content")
            raise tool_failed(
                error_text(found),
                parameters=parameters_of(target.tool),
                content=content if isinstance(content, list) else None,
            )
        await self._check(run, target, raw)
        value = value_of(raw, target.known.declared.get(target.tool.name), modern=run.is_modern)
        if isinstance(value, Value):
            plain, text = _cleaned(value.value, run.secrets, most)
            scanned = (await self.scanner.result(plain, scan, run.vault)).value
            if scanned is not plain:
                text = _encode(scanned)
            self.inferences.observe(target.server.key, target.tool, scanned, size=len(text))
            return f'{{"type":"result","tool":{_encode(target.name)},"value":{text}}}\n'
        parts, _ = _cleaned([value.content, value.structured], run.secrets, most)
        content, structured = (await self.scanner.result(parts, scan, run.vault)).value
        mixed = Content(content=content, structured=structured, has_structured=value.has_structured)
        return _encode(mixed.line(target.name)) + "\n"

    async def _check(self, run: Run, target: Target, raw: dict[str, Any]) -> None:
        """Raises Failure where the result is not what the tool declares."""
        known, name = target.known, target.tool.name
        try:
            self.outputs.check(target.name, raw, known.declared.get(name), catalog_hash=known.catalog.hash)
        except Failure as failure:
            self.catalogs.refresh(target.server.key)  # it may declare something else by now
            failure.message = (await self.scanner.result(failure.message, target.spec.scan, run.vault)).value
            raise


def _cleaned(value: Any, secrets: list[str], most: int) -> tuple[Any, str]:
    """JSON and its text without the server's credentials. Raises Failure where it is larger than it may be."""
    text = _encode(value)
    if len(text) > most:
        raise too_large(most)
    found = clean(value, secrets, text=text)
    return (value, text) if found is value else (found, _encode(found))
