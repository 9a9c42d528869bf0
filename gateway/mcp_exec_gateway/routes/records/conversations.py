"""Routes of reports about conversations."""

from typing import Annotated, Final

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.wire.records import ConversationReport, NewFeedback, NewUsageReport
from mcp_exec_gateway.auth.callers import Caller, check_user
from mcp_exec_gateway.dependencies import CreateCaller, Dependencies, Injected
from mcp_exec_gateway.http.query_params import NamespaceQuery
from mcp_exec_gateway.http.request_body import parse_model, read_body
from mcp_exec_gateway.openapi.operations import accepts, build_router, problems
from mcp_exec_gateway.records.outcomes import build_outcome_row
from mcp_exec_gateway.records.report_metrics import measure_report
from mcp_exec_gateway.records.reports import build_outcome, build_report_row, store_rows

router = build_router(prefix="/v1/conversations", tag="records")

_Conversation = Annotated[
    str,
    Path(
        max_length=63,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        description="Conversation, as executions name it.",
    ),
]
_MAX_BODY_BYTES: Final = 16 * 1024


@router.post("/{conversation}/usage", status_code=204, response_description="The report is stored")
@accepts(NewUsageReport)
@problems(404)
async def report_usage(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    conversation: _Conversation,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Report what a model used.

    Records the tokens of one task of a conversation. A report that is sent again with the same id counts once.
    """
    new = parse_model(NewUsageReport, await read_body(request, limit=_MAX_BODY_BYTES))
    rows = _build_rows(dependencies, caller, conversation, new, "model_usage")
    added = await store_rows(dependencies.records, rows)
    if added.created.get("model_usage", 1):  # a report that was sent again counts once
        measure_report(
            new, namespace=caller.namespace, metrics=dependencies.metrics, prices=dependencies.settings.prices
        )
    return Response(status_code=204)


@router.post("/{conversation}/feedback", status_code=204, response_description="The report is stored")
@accepts(NewFeedback)
@problems(404)
async def report_feedback(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    conversation: _Conversation,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Report what a person thinks.

    Records a rating of a conversation. A report that is sent again with the same id counts once.
    """
    new = parse_model(NewFeedback, await read_body(request, limit=_MAX_BODY_BYTES))
    rows = _build_rows(dependencies, caller, conversation, new, "feedback")
    await store_rows(dependencies.records, rows)
    return Response(status_code=204)


def _build_rows(
    dependencies: Dependencies, caller: Caller, conversation: str, report: ConversationReport, table: str
) -> dict[str, list[dict[str, object]]]:
    """Return the report's row, and the outcome of its unit, if it names one."""
    check_user(report.user, caller=caller)
    arm, outcomes = None, []
    if report.rollout is not None and report.unit is not None:
        rollout = dependencies.rollouts.get(caller.namespace, report.rollout)
        assigned = rollout.assign(report.unit, report.user)
        outcome = build_outcome(report)
        if assigned.is_enrolled and outcome is not None:  # others would be compared with the arms
            arm = assigned.arm.name
            outcomes = [
                build_outcome_row(
                    outcome,
                    namespace=caller.namespace,
                    caller=caller.name,
                    rollout=rollout.name,
                    uid=rollout.uid,
                    arm=arm,
                )
            ]
    row = build_report_row(report, namespace=caller.namespace, caller=caller.name, conversation=conversation, arm=arm)
    return {table: [row]} | ({"outcomes": outcomes} if outcomes else {})
