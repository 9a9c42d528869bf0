"""Results against what their tools say that they return: code relies on it, and its wrappers promise it.

The schema is the server's and not trusted. A check of a result is short: of a long list, the first rows are judged,
and the rest is taken to be like them.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from jsonschema import ValidationError

from mcp_exec_broker.calls.result import PythonValue, parse_value
from mcp_exec_broker.errors import ErrorKind, ErrorReason, ToolCallError
from mcp_exec_broker.validation.schema import BoundedValidator

_MAX_STEPS: Final = 1000
"""Some 3 ms."""
_MAX_TEXT: Final = 300


class OutputValidator:
    """Checks results. Schemas that are ready for use are kept, by catalog."""

    def __init__(self, *, max_kept: int = 4096) -> None:
        self._max_kept = max_kept
        self._kept: OrderedDict[tuple[str, str], BoundedValidator] = OrderedDict()

    def check(
        self, tool: str, result: Mapping[str, Any], schema: Mapping[str, Any] | None, *, catalog_hash: str
    ) -> None:
        """Raises Failure (ToolProtocolError, UnexpectedResult) where a `tools/call` result breaks the tool's schema.

        The failure's message has none of the result's values in it, but may have names. A server that leaves the
        structured content out is forgiven where its text, as JSON, is what the schema asks for.
        """
        if schema is None:
            return
        if "structuredContent" in result:
            value = result["structuredContent"]
        elif isinstance(found := parse_value(result, None, modern=True), PythonValue):
            value = found.value
        else:
            raise _unexpected(tool, "it has no structured content")
        error = self._judge(tool, schema, catalog_hash).error(value)
        if error is not None:
            raise _unexpected(tool, _said(error))

    def _judge(self, tool: str, schema: Mapping[str, Any], catalog_hash: str) -> BoundedValidator:
        key = (catalog_hash, tool)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = BoundedValidator(schema, name=tool, max_steps=_MAX_STEPS)
            while len(self._kept) > self._max_kept:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return found


def _said(error: ValidationError) -> str:
    """Where, and what the schema says there; never what stands there: the result was not looked through."""
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    wanted = json.dumps(error.validator_value)
    if len(wanted) > _MAX_TEXT:
        wanted = wanted[: _MAX_TEXT - 1] + "…"
    return f"{where[:_MAX_TEXT] or 'the value'} breaks {error.validator or 'a part that allows nothing'}: {wanted}"


def _unexpected(tool: str, why: str) -> ToolCallError:
    message = f"{tool} was called, but its result is not what its outputSchema says: {why}"
    return ToolCallError(ErrorKind.PROTOCOL, message, reason=ErrorReason.UNEXPECTED_RESULT)
