"""Results of direct calls: the server's own, or an error with the broker's reason."""

from typing import Any, Final

from mcp import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, TextContent

from mcp_exec_common.kube.objects import Object

REASON_META: Final = "mcp-exec.dev/reason"
"""Member of a result's `_meta` with the reason of an error, for programs."""
_RESERVED: Final = range(-32768, -31999)
"""Codes of errors that JSON-RPC and MCP define. Clients of the gateway would misread those of another server."""


def build_result(answer: Object, *, is_modern: bool) -> CallToolResult:
    """Return the result of a call. Raises MCPError if the server answered with a protocol error."""
    result: Any = answer.get("result")
    if isinstance(result, dict):
        # before 2026 structured content was an object
        if not is_modern and not isinstance(result.get("structuredContent", {}), dict):
            result = {name: value for name, value in result.items() if name != "structuredContent"}
        return CallToolResult.model_validate(result, by_name=False)
    message, code, reason = str(answer.get("message")), answer.get("code"), answer.get("reason")
    if isinstance(code, int):
        is_safe = code == INVALID_PARAMS or code not in _RESERVED
        raise MCPError(code if is_safe else INTERNAL_ERROR, message, {"code": code, "tool": answer.get("tool")})
    return build_error(message, reason=str(reason or answer.get("kind")), parameters=answer.get("parameters"))


def build_error(message: str, *, reason: str, parameters: Any = None) -> CallToolResult:
    """Return a result that says why a call was not made, or failed."""
    text = message
    if isinstance(parameters, list) and parameters:
        text += f"\nValid parameters (* = required): {', '.join(map(str, parameters))}"
    return CallToolResult(content=[TextContent(text=text)], is_error=True, _meta={REASON_META: reason})
