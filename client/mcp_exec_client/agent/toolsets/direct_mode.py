"""Direct calls: each tool by its own schema, its whole result to the model."""

import json
from collections.abc import Collection, Mapping
from time import perf_counter
from typing import Any, Final, Unpack

from mcp_exec_client.agent.approvals import ApprovalQuestion, OnApproval, ask_application
from mcp_exec_client.agent.errors import AgentError
from mcp_exec_client.agent.events import AgentStep, OnEvent
from mcp_exec_client.agent.providers.model import Block
from mcp_exec_client.agent.toolsets.mcp_calls import CallRefused, McpCalls
from mcp_exec_client.agent.toolsets.results import ToolOutcome, cut
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import Forbidden, GatewayError, Unauthenticated
from mcp_exec_client.options import ExecutionOptions
from mcp_exec_client.suggestions import suggesting
from mcp_exec_tools.schemas.model_schema import ModelSchema, build_model_schema

SYSTEM_PROMPT: Final = (
    "You get things done by calling tools; SERVER__TOOL is the name of a tool. If a call fails, its result says why: "
    "correct the call. A question that needs no tool needs no call: answer it."
)
_MAX_RESULT: Final = 100_000
"""Most characters of one result that the model receives."""
_FORM: Final = "approval"
_MAX_COMMENT: Final = 1024


@suggesting
class DirectMode:
    """Direct calls of the tools that the options allow, by the gateway and under its rights, budgets and audit.

    The options come from the application and never from the model.
    """

    def __init__(
        self, client: AsyncClient, *, on_approval: OnApproval | None = None, **options: Unpack[ExecutionOptions]
    ) -> None:
        patterns = options.get("tools", ())
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
