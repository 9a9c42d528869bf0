"""Tool calls that wait for somebody's consent."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.auth.caller import caller_who_may
from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.executions.approvals import NewDecision, approvals_view, decide
from mcp_exec_gateway.executions.naming import is_object_name
from mcp_exec_gateway.executions.views import json_response
from mcp_exec_gateway.http.access_log import trace_of
from mcp_exec_gateway.http.problems import not_found
from mcp_exec_gateway.http.query_params import Query, parse_query
from mcp_exec_gateway.http.request_body import parse_model, read_body
from mcp_exec_gateway.openapi import document as openapi
from mcp_exec_gateway.routes.executions import Name, Service

_BODY_BYTES = 16 * 1024


def router(*, dependencies: Dependencies) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/v1/executions", tags=["executions"])
    service = Service(dependencies=dependencies)
    may_get = caller_who_may("get", dependencies=dependencies)
    may_approve = caller_who_may("approve", dependencies=dependencies)

    @routes.get("/{name}/approvals", **openapi.APPROVALS)
    async def list_approvals(request: Request, name: Name) -> Response:
        caller = await may_get(request)
        parse_query(Query, request)
        found = await service.find((caller.namespace, name))
        trace_of(request.scope).execution = name
        return json_response({"items": approvals_view(found)})

    @routes.post("/{name}/approvals/{id}", **openapi.DECIDE)
    async def decide_approval(
        request: Request, name: Name, id: Annotated[str, Path(description="The approval's id.")]
    ) -> Response:
        caller = await may_approve(request)
        parse_query(Query, request)
        key = (caller.namespace, name)
        if not is_object_name(name):
            raise not_found(*key)
        trace_of(request.scope).execution = name
        new = parse_model(NewDecision, await read_body(request, limit=_BODY_BYTES))
        return json_response(await decide(dependencies.kube, key, id=id, new=new, by=caller.name))

    return routes
