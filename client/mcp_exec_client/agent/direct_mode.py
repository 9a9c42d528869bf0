"""Direct calls: each tool by its own schema, its whole result to the model."""

import json
import uuid
from collections.abc import Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Unpack

from mcp_exec_api.wire.version import RELEASE
from mcp_exec_client.agent.approvals import ApprovalQuestion, OnApproval, ask_application
from mcp_exec_client.agent.outcomes import (
    AgentError,
    AgentStep,
    OnEvent,
    ToolOutcome,
    cut,
)
from mcp_exec_client.agent.providers.model import Block
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import Forbidden, GatewayError, GatewayUnreachable, Unauthenticated, UnexpectedResponse
from mcp_exec_client.mcp_bridge.endpoint import ClientMessage, McpEndpoint, Reception, is_response_to
from mcp_exec_client.options import ExecutionOptions, suggesting
from mcp_exec_client.transport import Attempts, Query, Transport
from mcp_exec_tools.schemas.model_schema import ModelSchema, build_model_schema

_REVISION: Final = "2026-07-28"
_PREFIX: Final = "io.modelcontextprotocol"
_META: Final[dict[str, Any]] = {
    f"{_PREFIX}/protocolVersion": _REVISION,
    f"{_PREFIX}/clientInfo": {"name": "mcp-exec-agent", "version": RELEASE},
}
_MAX_PAGES: Final = 100
Object = dict[str, Any]
SYSTEM_PROMPT: Final = (
    "You get things done by calling tools; SERVER__TOOL is the name of a tool. If a call fails, its result says why: "
    "correct the call. A question that needs no tool needs no call: answer it."
)
_MAX_RESULT: Final = 100_000
"""Most characters of one result that the model receives."""
_FORM: Final = "approval"
_MAX_COMMENT: Final = 1024


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
                page = await self._request("tools/list", {} if cursor is None else {"cursor": cursor}, repeatable=True)
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
        attempts = Attempts(self.transport)
        while True:
            try:
                return await self._send(method, params)
            except (GatewayError, GatewayUnreachable) as error:
                await attempts.pause(error, repeatable=repeatable)

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


@suggesting
class DirectMode:
    """Direct calls of the tools that the options allow, by the gateway and under its rights, budgets and audit.

    The options come from the application and never from the model.
    """

    def __init__(
        self, client: AsyncClient, *, on_approval: OnApproval | None = None, **options: Unpack[ExecutionOptions]
    ) -> None:
        patterns = options.get("tools") or ()
        query = {
            "mode": "direct",
            "pool": options.get("pool"),
            "tools": ",".join(patterns),
            "user": options.get("user"),
            "conversation": options.get("conversation"),
            "useCase": options.get("use_case"),
        }
        self._may_call = bool(patterns)
        self._on_approval = on_approval
        self._calls = McpCalls(
            transport=client.transport, query=client.channel.query(**query), shows_forms=on_approval is not None
        )
        self._tools: list[Block] | None = None
        self._models: dict[str, ModelSchema] = {}

    async def tools(self, only: Collection[str] | None = None) -> list[Block]:
        """Return definitions of tools in a constant order; `only` are names as SERVER.TOOL. Raises AgentError.

        They are listed once, so that prompt caching works.
        """
        if self._tools is None:
            try:
                listed = await self._calls.list_tools() if self._may_call else []
            except GatewayError as error:
                raise AgentError(f"the gateway did not list tools: {error}") from error
            self._models = {str(tool.get("name")): _build_model(tool) for tool in listed}
            self._tools = [_define(name, model) for name, model in sorted(self._models.items())]
        wanted = None if only is None else {_normalize(name.replace(".", "__", 1)) for name in only}
        return [tool for tool in self._tools if wanted is None or _normalize(tool["name"]) in wanted]

    async def work(self, name: str, given: object, *, on_event: OnEvent) -> ToolOutcome:
        """Call a tool and return the outcome. Raises AgentError and McpExecError."""
        arguments = dict(given) if isinstance(given, Mapping) else {}
        began = perf_counter()
        try:
            result = await self._call(name, arguments)
            outcome = ToolOutcome(text=cut(read_text(result), _MAX_RESULT), failed=bool(result.get("isError")))
        except CallRefused as error:
            outcome = ToolOutcome(text=str(error), failed=True, refused=True)
        except (Unauthenticated, Forbidden) as error:
            raise AgentError(f"the gateway rejected the request: {error}") from error
        except GatewayError as error:
            outcome = ToolOutcome(text=str(error), failed=True, refused=True)
        milliseconds = (perf_counter() - began) * 1000
        text = f"{name}: {len(outcome.text)} characters"
        await on_event(AgentStep(kind="call", text=text, milliseconds=milliseconds, failed=outcome.failed))
        await on_event(AgentStep(kind="results", text=cut(outcome.text), failed=outcome.failed))
        return outcome

    async def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        arguments = self._models[name].restore(arguments) if name in self._models else arguments
        result = await self._calls.call_tool(name, arguments)
        requests = result.get("inputRequests")
        if self._on_approval is None or not isinstance(requests, dict) or _FORM not in requests:
            return result
        question = ApprovalQuestion(tool=name.replace("__", ".", 1), arguments=cut(json.dumps(arguments), 2000))
        answer = await ask_application(self._on_approval, question)
        if answer is None:
            form: dict[str, Any] = {"action": "cancel"}
        else:
            comment = {"comment": answer[:_MAX_COMMENT]} if isinstance(answer, str) and answer else {}
            form = {"action": "accept", "content": {"decision": "Approve" if answer is True else "Deny", **comment}}
        state = {"requestState": result.get("requestState"), "inputResponses": {_FORM: form}}
        return await self._calls.call_tool(name, arguments, more=state)


def _build_model(tool: Mapping[str, Any]) -> ModelSchema:
    """Return the definition as models accept it, whatever the gateway's release does."""
    schema = tool.get("inputSchema")
    description = str(tool.get("description") or tool.get("title") or "")
    return build_model_schema(schema if isinstance(schema, Mapping) else {}, description)


def _define(name: str, model: ModelSchema) -> Block:
    definition = {"name": name, "description": model.description, "input_schema": model.schema}
    return {name: value for name, value in definition.items() if value}


def _normalize(name: str) -> str:
    return name.replace("-", "_").replace(".", "_").lower()


def read_text(result: Mapping[str, Any]) -> str:
    """Return the result of a tool as text: its structured content, or its blocks."""
    if "structuredContent" in result:
        return json.dumps(result["structuredContent"], ensure_ascii=False, separators=(",", ":"))
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    parts = [
        str(block["text"]) if isinstance(block.get("text"), str) else f"[{block.get('type')}: not shown]"
        for block in blocks
    ]
    return "\n".join(parts) or "(no content)"


def count_rows(text: str) -> int:
    """Return the number of items of the longest list at the top of a JSON result, else its lines."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text.count("\n") + 1
    candidates = [value, *(value.values() if isinstance(value, dict) else ())]
    return max((len(each) for each in candidates if isinstance(each, list)), default=1)
