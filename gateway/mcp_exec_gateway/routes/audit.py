"""Records of tool calls."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.auth.caller import caller_who_may
from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.executions.views import json_response
from mcp_exec_gateway.http.query_params import AuditQuery, parse_query
from mcp_exec_gateway.openapi import document as openapi
from mcp_exec_gateway.tools.audit import fetch_audit_page


def router(*, dependencies: Dependencies) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix="/v1", tags=["audit"])
    may_list = caller_who_may("list", dependencies=dependencies)

    @routes.get("/audit", **openapi.AUDIT)
    async def list_calls(request: Request) -> Response:
        caller = await may_list(request)
        query = parse_query(AuditQuery, request)
        return json_response(await fetch_audit_page(dependencies.brokers, namespace=caller.namespace, query=query))

    return routes
