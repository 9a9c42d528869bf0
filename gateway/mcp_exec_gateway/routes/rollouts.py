"""Routes of rollouts: list, get, assign. Any application can use them as a flag service."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.auth.users import check_user
from mcp_exec_gateway.dependencies import CreateCaller, GetCaller, Injected, ListCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.query_params import NamespaceQuery, RolloutsQuery
from mcp_exec_gateway.http.request_body import parse_model, read_body
from mcp_exec_gateway.openapi import rollouts as openapi
from mcp_exec_gateway.rollouts.views import NewAssignment, build_assignment_view, build_rollout_view

router = APIRouter(prefix="/v1/rollouts", tags=["rollouts"])

Name = Annotated[str, Path(description="Name of the rollout.")]
_MAX_BODY_BYTES: Final = 8 * 1024


@router.get("", **openapi.LIST_ROLLOUTS)
async def list_rollouts(
    dependencies: Injected, caller: ListCaller, query: Annotated[RolloutsQuery, Query()]
) -> Response:
    """List the namespace's rollouts."""
    found = dependencies.rollouts.list_all(caller.namespace)
    return json_response({"items": [build_rollout_view(rollout) for rollout in found[: query.limit]]})


@router.get("/{name}", **openapi.GET_ROLLOUT)
async def get_rollout(
    dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[NamespaceQuery, Query()]
) -> Response:
    """Get a rollout."""
    return json_response(build_rollout_view(dependencies.rollouts.get(caller.namespace, name)))


@router.post("/{name}/assignments", **openapi.ASSIGN_ARM)
async def assign_arm(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    name: Name,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Return the arm of a unit."""
    new = parse_model(NewAssignment, await read_body(request, limit=_MAX_BODY_BYTES))
    check_user(new.user, caller=caller)
    rollout = dependencies.rollouts.get(caller.namespace, name)
    return json_response(build_assignment_view(rollout, new.unit, rollout.assign(new.unit, new.user)))
