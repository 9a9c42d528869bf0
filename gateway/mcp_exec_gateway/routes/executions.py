"""Routes of executions: create, list, get, cancel, delete."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.execution_state import is_finished
from mcp_exec_api.wire.executions import NewExecution
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.dependencies import CreateCaller, Dependencies, GetCaller, Injected, ListCaller, PatchCaller
from mcp_exec_gateway.executions.views import build_view
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.query_params import (
    CancelQuery,
    CreateQuery,
    GetQuery,
    IdempotencyKey,
    Include,
    ListQuery,
)
from mcp_exec_gateway.http.request_body import parse_spec, read_body
from mcp_exec_gateway.openapi import document as openapi

router = APIRouter(prefix="/v1/executions", tags=["executions"])

Name = Annotated[str, Path(description="Name of the execution.")]


@router.post("", **openapi.CREATE)
async def create_execution(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    query: Annotated[CreateQuery, Query()],
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Create an execution and wait for its end."""
    service = dependencies.executions
    service.check_wait(query.wait)
    with dependencies.memory.reserving(caller.namespace) as memory:
        execution = await service.create(
            request,
            # no variable, which would keep the code during the wait
            parse_spec(
                NewExecution,
                await read_body(request, limit=dependencies.settings.max_body_bytes, memory=memory),
                memory,
            ),
            caller=caller,
            query=query,
            idempotency_key=idempotency_key,
            memory=memory,
        )
    suffix = f"?namespace={quote(query.namespace)}" if query.namespace else ""
    location = f"/v1/executions/{execution['metadata']['name']}{suffix}"
    status = 200 if is_finished(execution) else 202
    return _respond(execution, dependencies, status=status, headers={"Location": location})


@router.get("", **openapi.LIST)
async def list_executions(dependencies: Injected, caller: ListCaller, query: Annotated[ListQuery, Query()]) -> Response:
    """List executions."""
    page = await dependencies.executions.list_page(query, caller=caller)
    return json_response(page, memory=dependencies.memory, namespace=caller.namespace)


@router.get("/{name}", **openapi.GET)
async def get_execution(
    request: Request, dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[GetQuery, Query()]
) -> Response:
    """Get an execution, optionally at its end."""
    dependencies.executions.check_wait(query.wait)
    execution = await dependencies.executions.get(request, name, caller=caller, wait_seconds=query.wait)
    return _respond(execution, dependencies, status=200, include=query.include)


@router.delete("/{name}", **openapi.CANCEL)
async def cancel_execution(
    request: Request,
    dependencies: Injected,
    caller: PatchCaller,
    name: Name,
    query: Annotated[CancelQuery, Query()],
) -> Response:
    """Request the cancellation of an execution, or delete one that has ended."""
    if query.purge:
        left = await dependencies.deleter.delete(request, name, caller=caller)
        return Response(status_code=204) if left is None else _respond(left, dependencies, status=202)
    execution = await dependencies.executions.cancel(request, name, caller=caller)
    return _respond(execution, dependencies, status=200 if is_finished(execution) else 202)


def _respond(
    execution: Object,
    dependencies: Dependencies,
    *,
    status: int,
    headers: dict[str, str] | None = None,
    include: Include | None = None,
) -> Response:
    view = build_view(execution, attestor=dependencies.attestor, include=include)
    namespace = execution["metadata"]["namespace"]
    return json_response(view, status=status, headers=headers, memory=dependencies.memory, namespace=namespace)
