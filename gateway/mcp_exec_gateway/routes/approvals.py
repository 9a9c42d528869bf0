"""Routes of approvals: list those of an execution or of a namespace, decide."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.wire.executions import NewDecision
from mcp_exec_gateway.dependencies import ApproveCaller, GetCaller, Injected, ListCaller
from mcp_exec_gateway.executions import approvals
from mcp_exec_gateway.executions.submission import is_object_name
from mcp_exec_gateway.http.access_log import get_trace
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.problems import not_found
from mcp_exec_gateway.http.query_params import ApprovalsQuery, NamespaceQuery
from mcp_exec_gateway.http.request_body import parse_model, read_body
from mcp_exec_gateway.openapi import document as openapi

router = APIRouter(prefix="/v1", tags=["approvals"])

_MAX_BODY_BYTES: Final = 16 * 1024


@router.get("/approvals", **openapi.PENDING_APPROVALS)
async def list_pending_approvals(
    dependencies: Injected, caller: ListCaller, query: Annotated[ApprovalsQuery, Query()]
) -> Response:
    """List the pending approvals of a namespace."""
    return json_response(await approvals.list_pending_approvals(dependencies.broker, caller=caller, limit=query.limit))


@router.get("/executions/{name}/approvals", **openapi.APPROVALS)
async def list_approvals(
    request: Request,
    dependencies: Injected,
    caller: GetCaller,
    name: Annotated[str, Path(description="Name of the execution.")],
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """List an execution's approvals."""
    execution = await dependencies.executions.find(name, caller=caller)
    get_trace(request.scope).execution = name
    return json_response({"items": approvals.list_approvals(execution, attestor=dependencies.attestor)})


@router.post("/executions/{name}/approvals/{id}", **openapi.DECIDE)
async def decide_approval(
    request: Request,
    dependencies: Injected,
    caller: ApproveCaller,
    name: Annotated[str, Path(description="Name of the execution.")],
    approval_id: Annotated[str, Path(alias="id", description="Id of the approval.")],
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Decide on a pending tool call."""
    if not is_object_name(name):
        raise not_found(caller.namespace, name)
    get_trace(request.scope).execution = name
    decision = parse_model(NewDecision, await read_body(request, limit=_MAX_BODY_BYTES))
    approval = await approvals.decide_approval(
        dependencies.kube,
        name,
        approval_id=approval_id,
        decision=decision,
        caller=caller,
        attestor=dependencies.attestor,
    )
    return json_response(approval)
