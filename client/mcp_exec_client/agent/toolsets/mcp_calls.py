"""Direct calls of tools by the gateway's MCP endpoint."""

import uuid
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_client.agent.errors import AgentError
from mcp_exec_client.errors import GatewayError, GatewayUnreachable, UnexpectedResponse
from mcp_exec_client.mcp_bridge.endpoint import McpEndpoint, Reception
from mcp_exec_client.mcp_bridge.messages import ClientMessage, is_response_to
from mcp_exec_client.transport import Query, Transport, can_retry

_REVISION: Final = "2026-07-28"
_PREFIX: Final = "io.modelcontextprotocol"
_META: Final[dict[str, Any]] = {
    f"{_PREFIX}/protocolVersion": _REVISION,
    f"{_PREFIX}/clientInfo": {"name": "mcp-exec-agent", "version": "v1alpha1"},
}
_MAX_PAGES: Final = 100

Object = dict[str, Any]


class CallRefused(Exception):
    """A protocol error in response to a call, such as an unknown tool. The text is the gateway's."""


@dataclass(frozen=True, kw_only=True)
class McpCalls:
    """Requests to the endpoint, in the revision without sessions."""

    transport: Transport
    query: Query
    shows_forms: bool
    """Whether the application decides about approvals."""

    async def list_tools(self) -> list[Object]:
        """Return the definitions of all tools that the caller may use. Raises McpExecError and AgentError."""
        tools: list[Object] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            try:
                page = await self._request("tools/list", {"cursor": cursor} if cursor else {}, repeatable=True)
            except CallRefused as error:
                raise AgentError(f"the gateway did not list tools: {error}") from error
            found = page.get("tools")
            tools += [tool for tool in found if isinstance(tool, dict)] if isinstance(found, list) else []
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                return tools
        raise UnexpectedResponse(f"the list of tools has more than {_MAX_PAGES} pages")

    async def call_tool(self, name: str, arguments: Mapping[str, Any], *, more: Object | None = None) -> Object:
        """Call a tool and return the result, or the request for an approval. Raises CallRefused and McpExecError."""
        params = {"name": name, "arguments": dict(arguments), **(more or {})}
        return await self._request("tools/call", params, repeatable=False)

    async def _request(self, method: str, params: Object, *, repeatable: bool) -> Object:
        transport, failures, waited = self.transport, 0, 0.0
        while True:
            try:
                return await self._send(method, params)
            except (GatewayError, GatewayUnreachable) as error:
                failures += 1
                retry_after = error.retry_after if isinstance(error, GatewayError) else None
                delay = transport.retries.find_delay(failures, waited=waited, retry_after=retry_after)
                if delay is None or not can_retry(error, repeatable=repeatable):
                    raise
            await transport.sleep(delay)
            waited += delay

    async def _send(self, method: str, params: Object) -> Object:
        capabilities: Object = {"elicitation": {"form": {}}} if self.shows_forms else {}
        meta = {**_META, f"{_PREFIX}/clientCapabilities": capabilities}
        request_id = uuid.uuid4().hex
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": meta}}
        message = ClientMessage(body=body, kind="request")
        endpoint = McpEndpoint(transport=self.transport, query=self.query)
        received = endpoint.exchange(body, headers=message.list_headers(), reception=Reception(headers={}))
        async with aclosing(received) as messages:
            async for answer in messages:
                if is_response_to(answer, request_id):
                    return _read_result(answer, method)
        raise GatewayUnreachable(f"{self.transport.url}/mcp: the response to {method} ended before its result")


def _read_result(answer: Object, method: str) -> Object:
    result = answer.get("result")
    if isinstance(result, dict):
        return result
    error = answer.get("error")
    if not isinstance(error, dict):
        raise UnexpectedResponse(f"the response to {method} has neither a result nor an error")
    raise CallRefused(str(error.get("message"))[:2000])
