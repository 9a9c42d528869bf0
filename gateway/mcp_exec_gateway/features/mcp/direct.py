"""The toolsets of `mode=direct`, tools by their own schemas, and of `mode=hybrid`, which has those of code as well."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mcp import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListToolsResult,
    TextContent,
    Tool,
)
from pydantic import ValidationError

from mcp_exec_api.approvals import ApprovalChoice
from mcp_exec_common.broker.grants import ApprovedCall
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.http.problems import invalid_field
from mcp_exec_gateway.core.pools import DEFAULT_POOL
from mcp_exec_gateway.features.mcp.code_mode.definitions import INSTRUCTIONS as CODE_INSTRUCTIONS
from mcp_exec_gateway.features.mcp.code_mode.definitions import TOOLS as CODE_TOOLS
from mcp_exec_gateway.features.mcp.code_mode.definitions import list_definitions
from mcp_exec_gateway.features.mcp.code_mode.run import RunOutcome
from mcp_exec_gateway.features.mcp.code_mode.tools import CodeTools
from mcp_exec_gateway.features.mcp.forms import build_form, read_decision
from mcp_exec_gateway.features.mcp.request import McpRequest, digest_request
from mcp_exec_gateway.features.mcp.transport.tokens import ConsentToken
from mcp_exec_gateway.features.tools.catalogs import MAX_NAME, ExportedTool, ToolSelection
from mcp_exec_gateway.features.tools.direct import CallCancelled, DirectAccess, RunningCalls, call_tool
from mcp_exec_gateway.features.tools.service import Tools
from mcp_exec_tools.catalog import Tool as CatalogTool
from mcp_exec_tools.names import find_close_names
from mcp_exec_tools.schemas.reading import has_dangling_reference

PAGE_TOOLS: Final = 100
PAGE_BYTES: Final = 512 * 1024
"""Bytes of definitions on one page, unless a single one is larger."""
_CURSOR: Final = re.compile(rf"after\.([A-Za-z0-9_-]{{1,{MAX_NAME}}})")


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of definitions."""

    tools: list[Tool]
    next_cursor: str | None


def build_page(tools: Sequence[ExportedTool], cursor: str | None, *, is_modern: bool) -> Page:
    """Return the page after a cursor, or the first one. `tools` are in alphabetical order.

    The cursor is a name, so that a page neither repeats nor leaves out tools that were there before. Raises
    HttpProblem, a 422, for a cursor of another server.
    """
    last = _parse_cursor(cursor)
    remaining = [tool for tool in tools if tool.name > last]
    page: list[Tool] = []
    size = 0
    for number, tool in enumerate(remaining):
        size += tool.size
        if page and (len(page) >= PAGE_TOOLS or size > PAGE_BYTES):
            return Page(tools=page, next_cursor=f"after.{remaining[number - 1].name}")
        definition = _define(tool, is_modern=is_modern)
        if definition is not None:
            page.append(definition)
    return Page(tools=page, next_cursor=None)


def _parse_cursor(cursor: str | None) -> str:
    if cursor is None:
        return ""
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise invalid_field("cursor", "malformed: send the `nextCursor` of the previous page unchanged")
    return match[1]


def _define(tool: ExportedTool, *, is_modern: bool) -> Tool | None:
    """Return the definition of a tool as models accept it, or None if the revision has no form for it."""
    given = tool.tool
    fields: dict[str, Any] = {
        "name": tool.name,
        "title": given.title or None,
        "description": tool.model.description or None,
        "inputSchema": tool.model.schema,
        "annotations": given.annotations or None,
    }
    if _is_declared(given) and (is_modern or _is_object(given.output_schema)):
        fields["outputSchema"] = given.output_schema
    try:
        return Tool.model_validate(fields, by_name=False)
    except ValidationError:
        return None


def _is_declared(tool: CatalogTool) -> bool:
    """Return whether clients can validate results: an inferred schema is a guess, a dangling reference an error."""
    return tool.output_schema is not None and not tool.inferred and not has_dangling_reference(tool.output_schema)


def _is_object(schema: Any) -> bool:
    # before 2026 the schema of a result was that of an object
    return bool(schema.get("type") == "object")


REASON_META: Final = "mcp-exec.dev/reason"
NOTES_META: Final = "mcp-exec.dev/notes"
"""Key of what was left out of the arguments of a direct call or changed in its result: a list of sentences."""
"""Member of a result's `_meta` with the reason of an error, for programs."""
_RESERVED: Final = range(-32768, -31999)
"""Codes of errors that JSON-RPC and MCP define. Clients of the gateway would misread those of another server."""


def build_result(answer: Object, *, is_modern: bool) -> CallToolResult:
    """Return the result of a call. Raises MCPError if the server answered with a protocol error."""
    result: Any = answer.get("result")
    if isinstance(result, dict):
        # before 2026 structured content was an object
        if not is_modern and not isinstance(structured := result.get("structuredContent", {}), dict):
            result = {name: value for name, value in result.items() if name != "structuredContent"}
            result["content"] = _add_text(result.get("content") or [], structured)
        notes = answer.get("notes")
        meta = {"_meta": {NOTES_META: notes}} if isinstance(notes, list) and notes else {}
        return CallToolResult.model_validate({**result, **meta}, by_name=False)
    message, code, reason = str(answer.get("message")), answer.get("code"), answer.get("reason")
    if isinstance(code, int):
        is_safe = code == INVALID_PARAMS or code not in _RESERVED
        raise MCPError(code if is_safe else INTERNAL_ERROR, message, {"code": code, "tool": answer.get("tool")})
    return build_error(message, reason=str(reason or answer.get("kind")), parameters=answer.get("parameters"))


def _add_text(content: list[Any], structured: Any) -> list[Any]:
    """Return content with a value that has no other place as its last text, unless a text is this value."""
    if structured is None or any(_parse_text(block) == [structured] for block in content):
        return content
    return [*content, {"type": "text", "text": json.dumps(structured, ensure_ascii=False)}]


def _parse_text(block: Any) -> list[Any]:
    """Return the value of a block whose text is JSON, or nothing."""
    try:
        return [json.loads(block["text"])]
    except (KeyError, TypeError, ValueError, RecursionError):
        return []


def build_error(message: str, *, reason: str, parameters: Any = None) -> CallToolResult:
    """Return a result that says why a call was not made, or failed."""
    text = message
    if isinstance(parameters, list) and parameters:
        text += f"\nValid parameters (* = required): {', '.join(map(str, parameters))}"
    return CallToolResult(content=[TextContent(text=text)], is_error=True, _meta={REASON_META: reason})


_FORM_KEY: Final = "approval"


async def ask_for_consent(request: McpRequest, answer: Object) -> CallToolResult | InputRequiredResult:
    """Return the form for a call that needs an approval, or the error if the client can show none."""
    shown: Any = answer.get("approval")
    approval: Object = shown if isinstance(shown, dict) else {}
    tool, digest = str(approval.get("tool")), str(approval.get("argumentsDigest"))
    if not (request.is_modern and request.elicitation and await request.sender.may("approve")):
        return build_error(
            f"{tool} needs an approval, and a direct call does not wait for it. Call it by code with run_code (mode "
            "code or hybrid): there the call waits until somebody approves it. Or use a client of revision 2026-07-28 "
            "that can show forms, with an API key or account that may approve.",
            reason="ApprovalRequired",
        )
    return InputRequiredResult(
        input_requests={_FORM_KEY: build_form(f"Call {tool}", approval)},
        request_state=str(ConsentToken(tool=tool, digest=digest)),
    )


async def read_consent(
    request: McpRequest, params: CallToolRequestParams, tool: ExportedTool
) -> ApprovedCall | CallToolResult | None:
    """Return the consent that a repeated request carries, the error if its user denied the call, or None.

    Raises HttpProblem: 403 if the caller may not approve, 422 if the state is not from this gateway.
    """
    if params.request_state is None:
        return None
    token = ConsentToken.parse(params.request_state)
    response = (params.input_responses or {}).get(_FORM_KEY)
    filled = None if response is None else response.model_dump(by_alias=True, mode="json")
    decision = read_decision(filled, digest=token.digest)
    if decision is None:
        return build_error(f"{tool.path} was not approved: the form was not filled in", reason="NotApproved")
    caller = await request.sender.authorize("approve")
    if decision.decision is ApprovalChoice.DENY:
        comment = f": {decision.comment}" if decision.comment else ""
        return build_error(f"{tool.path} was not approved by {caller.name}{comment}", reason="NotApproved")
    return ApprovedCall(tool=token.tool, arguments_digest=token.digest, by=caller.name)


_CACHED_MS: Final = 5_000
"""How long clients may keep a list of tools, which changes with the ToolServers."""
_CODE_NAMES: Final = frozenset(tool.name for tool in CODE_TOOLS)


class DirectTools:
    """Toolset of `mode=direct`."""

    instructions = "The tools are those of several MCP servers; SERVER__TOOL is the name of a tool."

    def __init__(self, *, only_marked: bool = False) -> None:
        self._only_marked = only_marked
        """Whether to offer only the tools that their ToolServers mark as cheap."""

    async def list_tools(self, request: McpRequest, cursor: str | None) -> ListToolsResult:
        """Return one page of the tools that the caller may use."""
        selection = await self.select(request, check_access(request))
        # schemas are converted when they are first listed, which takes a second for servers that try
        page = await request.sender.dependencies.get(Tools).catalogs.threads.run(
            request.sender.caller.name, lambda: build_page(selection.tools, cursor, is_modern=request.is_modern)
        )
        return ListToolsResult(tools=page.tools, next_cursor=page.next_cursor, ttl_ms=_CACHED_MS, cache_scope="private")

    async def call_tool(
        self, request: McpRequest, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool by the broker. Denials are errors in the result, with the broker's reason."""
        sender = request.sender
        await sender.authorize("create")
        access = check_access(request)
        selection = await self.select(request, access)
        tool = selection.find(params.name)
        if tool is None:
            raise _build_unknown_error(params.name, selection)
        consent = await read_consent(request, params, tool)
        if isinstance(consent, CallToolResult):
            return consent
        return await self._call(request, tool, params.arguments or {}, access=access, approved=consent)

    async def select(self, request: McpRequest, access: DirectAccess) -> ToolSelection:
        """Return the tools that the caller may use in this mode."""
        sender, catalogs = request.sender, request.sender.dependencies.get(Tools).catalogs
        exported = (await catalogs.get(sender.namespace)).exported
        return await exported.select(
            access.rights, caller=sender.caller.name, threads=catalogs.threads, only_direct=self._only_marked
        )

    async def _call(
        self,
        request: McpRequest,
        tool: ExportedTool,
        arguments: Mapping[str, Any],
        *,
        access: DirectAccess,
        approved: ApprovedCall | None,
    ) -> CallToolResult | InputRequiredResult:
        dependencies = request.sender.dependencies
        try:
            with dependencies.get(RunningCalls).hold(digest_request(request)):
                answer = await call_tool(
                    dependencies.get(Tools).direct_calls,
                    access,
                    tool,
                    tool.model.restore(arguments),
                    memory=request.memory,
                    approved=approved,
                )
        except CallCancelled:
            raise MCPError(INVALID_REQUEST, "the client cancelled the request") from None
        if answer.get("reason") == "ApprovalRequired":
            return await ask_for_consent(request, answer)
        return build_result(answer, is_modern=request.is_modern)

    async def list_prompts(self, request: McpRequest) -> ListPromptsResult:
        """Return no prompts."""
        return ListPromptsResult(prompts=[])

    async def get_prompt(self, request: McpRequest, params: GetPromptRequestParams) -> GetPromptResult:
        """Raise MCPError: there are none."""
        raise MCPError(INVALID_PARAMS, f"there is no prompt {params.name[:100]!r}; this mode has none")


class HybridTools(CodeTools):
    """Toolset of `mode=hybrid`: that of `mode=code`, and the tools that their ToolServers mark as cheap."""

    instructions = (
        f"{CODE_INSTRUCTIONS} Tools whose name contains `__` can also be called directly: do so for a single call with "
        "a short result."
    )

    def __init__(self) -> None:
        self.direct = DirectTools(only_marked=True)

    async def list_tools(self, request: McpRequest, cursor: str | None) -> ListToolsResult:
        """Return the tools of code on the first page, before the others."""
        page = await self.direct.list_tools(request, cursor)
        first = list_definitions(request.sender) if cursor is None else []
        return page.model_copy(update={"tools": [*first, *page.tools]})

    async def call_tool(self, request: McpRequest, params: CallToolRequestParams) -> RunOutcome:
        """Call a tool of code, or another one directly."""
        if params.name in _CODE_NAMES:
            return await super().call_tool(request, params)
        return await self.direct.call_tool(request, params)


def check_access(request: McpRequest) -> DirectAccess:
    """Return the caller with what it may use. Raises HttpProblem."""
    sender, options = request.sender, request.sender.options
    return DirectAccess.check(
        sender.caller,
        pools=sender.dependencies.pools,
        pool=options.pool or DEFAULT_POOL,
        tools=sender.allowed_tools,
        user=options.user,
        conversation=options.conversation,
    )


def _build_unknown_error(name: str, selection: ToolSelection) -> MCPError:
    close = find_close_names(name, (tool.name for tool in selection.tools))
    suggestion = f"; did you mean {' or '.join(close)}?" if close else "; tools/list names those that you may use"
    return MCPError(INVALID_PARAMS, f"there is no tool {name[:100]!r}{suggestion}")
