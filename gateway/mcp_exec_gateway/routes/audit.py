"""Route of audit records of tool calls."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from mcp_exec_api.wire.tools import CallList
from mcp_exec_gateway.dependencies import Injected, ListCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.query_params import AuditQuery
from mcp_exec_gateway.openapi.operations import build_router
from mcp_exec_gateway.tools.audit import fetch_audit_page

router = build_router(prefix="/v1", tag="audit")


@router.get("/audit", response_model=CallList, response_description="A page")
async def list_calls(dependencies: Injected, caller: ListCaller, query: Annotated[AuditQuery, Query()]) -> Response:
    """List audit records of tool calls.

    Returns records of all tool calls in the namespace, newest first, with redacted arguments.
    """
    return json_response(await fetch_audit_page(dependencies.broker, caller=caller, query=query))
