"""Route of audit records of tool calls."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from mcp_exec_gateway.dependencies import Injected, ListCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.query_params import AuditQuery
from mcp_exec_gateway.openapi import document as openapi
from mcp_exec_gateway.tools.audit import fetch_audit_page

router = APIRouter(prefix="/v1", tags=["audit"])


@router.get("/audit", **openapi.AUDIT)
async def list_calls(dependencies: Injected, caller: ListCaller, query: Annotated[AuditQuery, Query()]) -> Response:
    """List audit records of tool calls."""
    return json_response(await fetch_audit_page(dependencies.broker, caller=caller, query=query))
