"""Routes of tools: search, the tools of a server, and approvals of calls."""

from typing import Annotated, Final, Literal

from fastapi import Depends, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.approvals import Approval
from mcp_exec_api.constants import DEFAULT_LANGUAGE, Language
from mcp_exec_api.wire.executions import ApprovalList, NewDecision, PendingApprovalList
from mcp_exec_api.wire.tools import FoundTool, ServerTools
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.dependencies import GetCaller, Injected, ListCaller, authorize
from mcp_exec_gateway.core.executions.submission import is_object_name
from mcp_exec_gateway.core.http.access_log import get_trace
from mcp_exec_gateway.core.http.json import json_response
from mcp_exec_gateway.core.http.parameters import InNamespace, NamespaceQuery
from mcp_exec_gateway.core.http.problems import not_found
from mcp_exec_gateway.core.http.request_body import parse_model, read_body
from mcp_exec_gateway.core.openapi import accepts, build_router, problems
from mcp_exec_gateway.features.tools import approvals
from mcp_exec_gateway.features.tools.service import Tools
from mcp_exec_tools.search.index import DEFAULT_LIMIT, MAX_LIMIT, MAX_QUERY, DetailLevel

approvals_router = build_router(prefix="/v1", tag="approvals")
router = build_router(prefix="/api/v1/mcp", tag="mcp")

ApproveCaller = Annotated[Caller, Depends(authorize("approve"))]
ExecutionName = Annotated[str, Path(description="Name of the execution.")]
_MAX_DECISION_BYTES: Final = 16 * 1024


class ApprovalsQuery(NamespaceQuery):
    """Parameters of listing the approvals of a namespace."""

    state: Annotated[
        Literal["pending"],
        Field(
            description="Only pending approvals are listed. Those of one execution, in all states, are at "
            "`/v1/executions/{name}/approvals`."
        ),
    ] = "pending"
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of approvals.")] = 100


class SearchQuery(NamespaceQuery):
    """Parameters of a search for tools."""

    query: Annotated[
        str, Field(max_length=MAX_QUERY, description="What the tools should do; an empty query lists all tools.")
    ] = ""
    detail_level: Annotated[DetailLevel, Field(description="Amount of detail for each tool.")] = "name_only"
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Maximum number of tools.")] = DEFAULT_LIMIT
    language: Annotated[
        Language, Field(description="Language of the names, imports and signatures, and of the skills.")
    ] = DEFAULT_LANGUAGE


@approvals_router.get("/approvals", response_model=PendingApprovalList, response_description="The approvals")
async def list_pending_approvals(
    dependencies: Injected, caller: ListCaller, query: Annotated[ApprovalsQuery, Query()]
) -> Response:
    """List pending approvals.

    Returns the tool calls of the namespace that wait for an approval, newest first.
    """
    return json_response(await approvals.list_pending_approvals(dependencies.broker, caller=caller, limit=query.limit))


@approvals_router.get("/executions/{name}/approvals", response_model=ApprovalList, response_description="The approvals")
@problems(404)
async def list_approvals(
    request: Request, dependencies: Injected, caller: GetCaller, name: ExecutionName, query: InNamespace
) -> Response:
    """List an execution's approvals.

    Returns the newest 50 tool calls of the execution that need or needed an approval.
    """
    execution = await dependencies.executions.find(name, caller=caller)
    get_trace(request.scope).execution = name
    return json_response({"items": approvals.list_approvals(execution, attestor=dependencies.attestor)})


@approvals_router.post(
    "/executions/{name}/approvals/{id}", response_model=Approval, response_description="The approval"
)
@accepts(NewDecision)
@problems(404, (409, "The approval is decided, expired or withdrawn"))
async def decide_approval(
    request: Request,
    dependencies: Injected,
    caller: ApproveCaller,
    name: ExecutionName,
    approval_id: Annotated[str, Path(alias="id", description="Id of the approval.")],
    query: InNamespace,
) -> Response:
    """Approve or deny a tool call.

    Decides on a pending tool call; a decision is final. The caller needs an approver's API key, or a ServiceAccount
    that may `update` `codeexecutions/approval`.
    """
    if not is_object_name(name):
        raise not_found(caller.namespace, name)
    get_trace(request.scope).execution = name
    decision = parse_model(NewDecision, await read_body(request, limit=_MAX_DECISION_BYTES))
    approval = await approvals.decide_approval(
        dependencies.kube,
        name,
        approval_id=approval_id,
        decision=decision,
        caller=caller,
        attestor=dependencies.attestor,
    )
    return json_response(approval)


@router.get("/tools/search", response_model=list[FoundTool], response_description="The tools")
async def search_tools(dependencies: Injected, caller: ListCaller, query: Annotated[SearchQuery, Query()]) -> Response:
    """Search for tools.

    Returns tools that code in the namespace can call, best match first. `name_only` has name and server;
    `with_description` adds description and import; `full` adds signature, input_schema and output_schema.
    """
    level, limit, allow, language = query.detail_level, query.limit, caller.limits.tools, query.language
    tools = await dependencies.get(Tools).catalogs.use_index(
        caller,
        lambda index: index.search(query.query, detail_level=level, limit=limit, allow=allow, language=language),
        language=language,
    )
    return json_response(tools)


@router.get("/servers/{name}/tools", response_model=ServerTools, response_description="The tools")
@problems((404, "The server does not exist or has no tools"))
async def list_tools(
    dependencies: Injected,
    caller: ListCaller,
    name: Annotated[str, Path(description="Name of the server.")],
    query: InNamespace,
) -> Response:
    """List a server's tools.

    Returns the tools as the server lists them, with their own names and schemas, so that wrappers can be generated from
    the response. An API key with a limit on tools sees only those that it may use.
    """
    tools = await dependencies.get(Tools).catalogs.list_tools(caller, name)
    return json_response({"server": name, "tools": [tool.to_json() for tool in tools]})
