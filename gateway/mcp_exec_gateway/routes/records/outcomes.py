"""Routes of what the arms of rollouts measured."""

from typing import Annotated, Final

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.wire.records import NewOutcome
from mcp_exec_api.wire.rollouts import RolloutReport
from mcp_exec_gateway.auth.callers import check_user
from mcp_exec_gateway.dependencies import CreateCaller, GetCaller, Injected
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.query_params import NamespaceQuery
from mcp_exec_gateway.http.request_body import parse_model, read_body
from mcp_exec_gateway.openapi.operations import accepts, build_router, problems
from mcp_exec_gateway.records.outcomes import build_outcome_row, build_report, measure_rollout
from mcp_exec_gateway.records.reports import store_rows

router = build_router(prefix="/v1/rollouts", tag="rollouts")

_Name = Annotated[str, Path(description="Name of the rollout.")]
_MAX_BODY_BYTES: Final = 8 * 1024


@router.post("/{name}/outcomes", status_code=204, response_description="The report is stored")
@accepts(NewOutcome)
@problems(404)
async def report_outcome(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    name: _Name,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Report an outcome.

    Records what came of a conversation or task of a unit. The guards and the report of the rollout measure it. A report
    that is sent again with the same id counts once.
    """
    new = parse_model(NewOutcome, await read_body(request, limit=_MAX_BODY_BYTES))
    check_user(new.user, caller=caller)
    rollout = dependencies.rollouts.get(caller.namespace, name)
    assigned = rollout.assign(new.unit, new.user)
    if assigned.is_enrolled:  # others would be compared with the arms
        row = build_outcome_row(
            new,
            namespace=caller.namespace,
            caller=caller.name,
            rollout=rollout.name,
            uid=rollout.uid,
            arm=assigned.arm.name,
        )
        await store_rows(dependencies.records, {"outcomes": [row]})
    return Response(status_code=204)


@router.get("/{name}/report", response_model=RolloutReport, response_description="The report")
@problems(404)
async def get_rollout_report(
    dependencies: Injected, caller: GetCaller, name: _Name, query: Annotated[NamespaceQuery, Query()]
) -> Response:
    """Get the report of a rollout.

    Returns what each arm measured: success, latency, tokens, cost and rating with 95 % confidence intervals (Wilson's
    for shares, Student's for means, order statistics for the percentile).
    """
    rollout = dependencies.rollouts.get(caller.namespace, name)
    measured = await measure_rollout(dependencies.records, namespace=caller.namespace, uid=rollout.uid)
    return json_response(build_report(measured, rollout=name, control=rollout.require_spec().control))
