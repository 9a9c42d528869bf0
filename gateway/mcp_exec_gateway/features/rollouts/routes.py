"""Routes of rollouts: list, get, assign, steer, report outcomes. Any application can use them as a flag service."""

from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.wire.records import NewOutcome
from mcp_exec_api.wire.rollouts import Assignment, NewAssignment, NewPromotion, Rollout, RolloutList, RolloutReport
from mcp_exec_gateway.core.auth.callers import Caller, check_user
from mcp_exec_gateway.core.dependencies import CreateCaller, GetCaller, Injected, ListCaller, authorize
from mcp_exec_gateway.core.http.json import json_response
from mcp_exec_gateway.core.http.parameters import InNamespace, NamespaceQuery
from mcp_exec_gateway.core.http.request_body import parse_model, read_body
from mcp_exec_gateway.core.openapi import accepts, build_router, problems
from mcp_exec_gateway.features.records.service import build_outcome_row, build_report, measure_rollout, store_rows
from mcp_exec_gateway.features.rollouts.service import Rollouts, build_assignment_view, build_rollout_view

router = build_router(prefix="/v1/rollouts", tag="rollouts")

Name = Annotated[str, Path(description="Name of the rollout.")]
RolloutApproveCaller = Annotated[Caller, Depends(authorize("approve-rollouts"))]
_MAX_BODY_BYTES: Final = 8 * 1024
_STEERED: Final[dict[str, Any]] = {
    "status_code": 202,
    "response_model": Rollout,
    "response_description": "The rollout; the operator follows",
}
"""Response of the routes that change a rollout."""


class RolloutsQuery(NamespaceQuery):
    """Parameters of listing rollouts."""

    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of rollouts.")] = 100


@router.get("", response_model=RolloutList, response_description="The rollouts")
async def list_rollouts(
    dependencies: Injected, caller: ListCaller, query: Annotated[RolloutsQuery, Query()]
) -> Response:
    """List rollouts.

    Returns the namespace's rollouts, ordered by name, from a cache some milliseconds old.
    """
    found = dependencies.get(Rollouts).cache.list_all(caller.namespace)
    return json_response({"items": [build_rollout_view(rollout) for rollout in found[: query.limit]]})


@router.get("/{name}", response_model=Rollout, response_description="The rollout")
@problems(404)
async def get_rollout(dependencies: Injected, caller: GetCaller, name: Name, query: InNamespace) -> Response:
    """Get a rollout.

    Returns a rollout with its stage, its arms, and what its guards found.
    """
    return json_response(build_rollout_view(dependencies.get(Rollouts).cache.get(caller.namespace, name)))


@router.post("/{name}/assignments", response_model=Assignment, response_description="The arm")
@accepts(NewAssignment)
@problems(404, (409, "The rollout's spec contradicts itself"))
async def assign_arm(
    request: Request, dependencies: Injected, caller: CreateCaller, name: Name, query: InNamespace
) -> Response:
    """Get the arm of a unit.

    Returns the arm of a unit, by a salted hash of it. The same unit keeps its arm while the rollout enrols more units.
    It gets the control arm if it is not enrolled, and after a rollback or an abort.
    """
    new = parse_model(NewAssignment, await read_body(request, limit=_MAX_BODY_BYTES))
    check_user(new.user, caller=caller)
    rollout = dependencies.get(Rollouts).cache.get(caller.namespace, name)
    assigned = rollout.assign(new.unit, new.user)
    if assigned.stage is not None:
        dependencies.get(Rollouts).exposures.add(
            caller=caller,
            rollout=rollout.name,
            uid=rollout.uid,
            unit=new.unit,
            arm=assigned.arm.name,
            stage=assigned.stage,
        )
    return json_response(build_assignment_view(rollout, new.unit, assigned))


@router.post("/{name}/promote", **_STEERED)
@accepts(NewPromotion)
@problems(404, (409, "The rollout has ended"))
async def promote_rollout(
    request: Request, dependencies: Injected, caller: RolloutApproveCaller, name: Name, query: InNamespace
) -> Response:
    """Promote a rollout.

    Begins a later stage although the present one is not over. The caller must be an approver of rollouts.
    """
    new = parse_model(NewPromotion, await read_body(request, limit=_MAX_BODY_BYTES))
    rollout = await dependencies.get(Rollouts).steering.promote(name, new.to, caller=caller)
    return json_response(build_rollout_view(rollout), status=202)


@router.post("/{name}/pause", **_STEERED)
@problems(404, (409, "The rollout has ended"))
async def pause_rollout(
    dependencies: Injected, caller: RolloutApproveCaller, name: Name, query: InNamespace
) -> Response:
    """Pause a rollout.

    Stays in the present stage; assignments continue. The caller must be an approver of rollouts.
    """
    rollout = await dependencies.get(Rollouts).steering.set_paused(name, True, caller=caller)
    return json_response(build_rollout_view(rollout), status=202)


@router.post("/{name}/resume", **_STEERED)
@problems(404, (409, "The rollout has ended"))
async def resume_rollout(
    dependencies: Injected, caller: RolloutApproveCaller, name: Name, query: InNamespace
) -> Response:
    """Resume a rollout.

    Lets the stages go on. The caller must be an approver of rollouts.
    """
    rollout = await dependencies.get(Rollouts).steering.set_paused(name, False, caller=caller)
    return json_response(build_rollout_view(rollout), status=202)


@router.post("/{name}/abort", **_STEERED)
@problems(404, (409, "The rollout has ended"))
async def abort_rollout(
    dependencies: Injected, caller: RolloutApproveCaller, name: Name, query: InNamespace
) -> Response:
    """Abort a rollout.

    Gives every unit the control arm at once, for good. The caller must be an approver of rollouts.
    """
    rollout = await dependencies.get(Rollouts).steering.abort(name, caller=caller)
    return json_response(build_rollout_view(rollout), status=202)


@router.post("/{name}/outcomes", status_code=204, response_description="The report is stored")
@accepts(NewOutcome)
@problems(404)
async def report_outcome(
    request: Request, dependencies: Injected, caller: CreateCaller, name: Name, query: InNamespace
) -> Response:
    """Report an outcome.

    Records what came of a conversation or task of a unit. The guards and the report of the rollout measure it. A report
    that is sent again with the same id counts once.
    """
    new = parse_model(NewOutcome, await read_body(request, limit=_MAX_BODY_BYTES))
    check_user(new.user, caller=caller)
    rollout = dependencies.get(Rollouts).cache.get(caller.namespace, name)
    assigned = rollout.assign(new.unit, new.user)
    if assigned.is_enrolled:  # others would be compared with the arms
        row = build_outcome_row(
            new,
            namespace=caller.namespace,
            caller=caller.label,
            rollout=rollout.name,
            uid=rollout.uid,
            arm=assigned.arm.name,
        )
        await store_rows(dependencies.get(Rollouts).records, {"outcomes": [row]})
    return Response(status_code=204)


@router.get("/{name}/report", response_model=RolloutReport, response_description="The report")
@problems(404)
async def get_rollout_report(dependencies: Injected, caller: GetCaller, name: Name, query: InNamespace) -> Response:
    """Get the report of a rollout.

    Returns what each arm measured: success, latency, tokens, cost and rating with 95 % confidence intervals (Wilson's
    for shares, Student's for means, order statistics for the percentile).
    """
    rollout = dependencies.get(Rollouts).cache.get(caller.namespace, name)
    measured = await measure_rollout(dependencies.get(Rollouts).records, namespace=caller.namespace, uid=rollout.uid)
    return json_response(build_report(measured, rollout=name, control=rollout.require_spec().control))
