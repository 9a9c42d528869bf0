"""Routes of reports about conversations."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.auth.authenticator import Caller
from mcp_exec_gateway.auth.users import check_user
from mcp_exec_gateway.dependencies import CreateCaller, Dependencies, Injected
from mcp_exec_gateway.http.query_params import NamespaceQuery
from mcp_exec_gateway.http.request_body import parse_model, read_body
from mcp_exec_gateway.openapi import records as openapi
from mcp_exec_gateway.records.reports import (
    ConversationReport,
    NewFeedback,
    NewUsageReport,
    build_report_row,
    store_report,
)

router = APIRouter(prefix="/v1/conversations", tags=["records"])

_Conversation = Annotated[
    str,
    Path(
        max_length=63,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        description="Conversation, as executions name it.",
    ),
]
_MAX_BODY_BYTES: Final = 16 * 1024


@router.post("/{conversation}/usage", **openapi.REPORT_USAGE)
async def report_usage(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    conversation: _Conversation,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Report what a model used."""
    new = parse_model(NewUsageReport, await read_body(request, limit=_MAX_BODY_BYTES))
    await store_report(dependencies.records, "model_usage", _build_row(dependencies, caller, conversation, new))
    return Response(status_code=204)


@router.post("/{conversation}/feedback", **openapi.REPORT_FEEDBACK)
async def report_feedback(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    conversation: _Conversation,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Report what a person thinks."""
    new = parse_model(NewFeedback, await read_body(request, limit=_MAX_BODY_BYTES))
    await store_report(dependencies.records, "feedback", _build_row(dependencies, caller, conversation, new))
    return Response(status_code=204)


def _build_row(
    dependencies: Dependencies, caller: Caller, conversation: str, report: ConversationReport
) -> dict[str, object]:
    check_user(report.user, caller=caller)
    arm = None
    if report.rollout is not None and report.unit is not None:
        rollout = dependencies.rollouts.get(caller.namespace, report.rollout)
        arm = rollout.assign(report.unit, report.user).arm.name
    return build_report_row(report, namespace=caller.namespace, caller=caller.name, conversation=conversation, arm=arm)
