"""Routes of rollouts: list, get, assign, steer. Any application can use them as a flag service."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.wire.rollouts import NewAssignment, NewPromotion
from mcp_exec_gateway.auth.callers import check_user
from mcp_exec_gateway.dependencies import CreateCaller, GetCaller, Injected, ListCaller, RolloutApproveCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.query_params import NamespaceQuery, RolloutsQuery
from mcp_exec_gateway.http.request_body import parse_model, read_body
from mcp_exec_gateway.openapi import rollouts as openapi
from mcp_exec_gateway.rollouts import build_assignment_view, build_rollout_view

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
    assigned = rollout.assign(new.unit, new.user)
    if assigned.stage is not None:
        dependencies.exposures.add(
            namespace=caller.namespace,
            rollout=rollout.name,
            uid=rollout.uid,
            unit=new.unit,
            arm=assigned.arm.name,
            stage=assigned.stage,
        )
    return json_response(build_assignment_view(rollout, new.unit, assigned))


@router.post("/{name}/promote", **openapi.PROMOTE_ROLLOUT)
async def promote_rollout(
    request: Request,
    dependencies: Injected,
    caller: RolloutApproveCaller,
    name: Name,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Request that a later stage begins."""
    new = parse_model(NewPromotion, await read_body(request, limit=_MAX_BODY_BYTES))
    rollout = await dependencies.rollout_steering.promote(name, new.to, caller=caller)
    return json_response(build_rollout_view(rollout), status=202)


@router.post("/{name}/pause", **openapi.PAUSE_ROLLOUT)
async def pause_rollout(
    dependencies: Injected, caller: RolloutApproveCaller, name: Name, query: Annotated[NamespaceQuery, Query()]
) -> Response:
    """Stay in the present stage."""
    rollout = await dependencies.rollout_steering.set_paused(name, True, caller=caller)
    return json_response(build_rollout_view(rollout), status=202)


@router.post("/{name}/resume", **openapi.RESUME_ROLLOUT)
async def resume_rollout(
    dependencies: Injected, caller: RolloutApproveCaller, name: Name, query: Annotated[NamespaceQuery, Query()]
) -> Response:
    """Let the stages go on."""
    rollout = await dependencies.rollout_steering.set_paused(name, False, caller=caller)
    return json_response(build_rollout_view(rollout), status=202)


@router.post("/{name}/abort", **openapi.ABORT_ROLLOUT)
async def abort_rollout(
    dependencies: Injected, caller: RolloutApproveCaller, name: Name, query: Annotated[NamespaceQuery, Query()]
) -> Response:
    """Give every unit the control arm."""
    rollout = await dependencies.rollout_steering.abort(name, caller=caller)
    return json_response(build_rollout_view(rollout), status=202)
