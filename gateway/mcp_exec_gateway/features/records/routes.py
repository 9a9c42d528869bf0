"""Routes of records: reports about conversations, the records' tables, usage, and audit records of tool calls."""

from typing import Annotated, Final

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.wire.records import (
    ConversationReport,
    KeyUseList,
    NewFeedback,
    NewUsageReport,
    RecordList,
    RecordTable,
)
from mcp_exec_api.wire.tools import CallList
from mcp_exec_api.wire.usage import UsageReport
from mcp_exec_gateway.core.auth.callers import Caller, check_user
from mcp_exec_gateway.core.dependencies import CreateCaller, Dependencies, Injected, ListCaller
from mcp_exec_gateway.core.http.json import json_response
from mcp_exec_gateway.core.http.parameters import NamespaceQuery
from mcp_exec_gateway.core.http.request_body import parse_model, read_body
from mcp_exec_gateway.core.openapi import accepts, build_router, problems
from mcp_exec_gateway.features.records.audit import fetch_audit_page
from mcp_exec_gateway.features.records.parameters import AuditQuery, RecordsQuery, UsageQuery
from mcp_exec_gateway.features.records.service import (
    Records,
    build_outcome,
    build_outcome_row,
    build_report_row,
    measure_report,
    read_key_uses,
    read_page,
    read_usage,
    store_rows,
)

router = build_router(prefix="/v1", tag="records")
audit_router = build_router(prefix="/v1", tag="audit")

Conversation = Annotated[
    str,
    Path(
        max_length=63,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        description="Conversation, as executions name it.",
    ),
]
_MAX_BODY_BYTES: Final = 16 * 1024


@router.post("/conversations/{conversation}/usage", status_code=204, response_description="The report is stored")
@accepts(NewUsageReport)
@problems(404)
async def report_usage(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    conversation: Conversation,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Report what a model used.

    Records the tokens of one task of a conversation. A report that is sent again with the same id counts once.
    """
    new = parse_model(NewUsageReport, await read_body(request, limit=_MAX_BODY_BYTES))
    rows = _build_rows(dependencies, caller, conversation, new, "model_usage")
    added = await store_rows(dependencies.get(Records).client, rows)
    if added.created.get("model_usage", 1):  # a report that was sent again counts once
        measure_report(
            new, namespace=caller.namespace, metrics=dependencies.metrics, prices=dependencies.settings.prices
        )
    return Response(status_code=204)


@router.post("/conversations/{conversation}/feedback", status_code=204, response_description="The report is stored")
@accepts(NewFeedback)
@problems(404)
async def report_feedback(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    conversation: Conversation,
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """Report what a person thinks.

    Records a rating of a conversation. A report that is sent again with the same id counts once.
    """
    new = parse_model(NewFeedback, await read_body(request, limit=_MAX_BODY_BYTES))
    rows = _build_rows(dependencies, caller, conversation, new, "feedback")
    await store_rows(dependencies.get(Records).client, rows)
    return Response(status_code=204)


@router.get("/records/{table}", response_model=RecordList, response_description="A page")
@problems(404)
async def list_records(
    dependencies: Injected,
    caller: ListCaller,
    table: Annotated[RecordTable, Path(description="Table of the records.")],
    query: Annotated[RecordsQuery, Query()],
) -> Response:
    """List records.

    Returns the namespace's records of one table, oldest first, for an export. A record is complete when it is stored,
    and does not change.
    """
    return json_response(await read_page(dependencies.get(Records).client, caller=caller, table=table, query=query))


@router.get("/usage", response_model=UsageReport, response_description="The usage")
@problems(404)
async def get_usage(dependencies: Injected, caller: ListCaller, query: Annotated[UsageQuery, Query()]) -> Response:
    """Get usage.

    Returns what models, sandboxes and tools used in the namespace, and what it cost by the installation's price table.
    Numbers of models are those that applications report: exact where the provider counted. What the other mode would
    have taken is an estimate from recorded sizes; losses are shown like savings.
    """
    prices = dependencies.settings.prices
    return json_response(await read_usage(dependencies.get(Records).client, caller=caller, query=query, prices=prices))


@router.get("/key-uses", response_model=KeyUseList, response_description="The last uses")
@problems(404)
async def list_key_uses(
    dependencies: Injected, caller: ListCaller, query: Annotated[NamespaceQuery, Query()]
) -> Response:
    """List the last uses of API keys.

    Returns the hour of the last use of each API key of the namespace, by any request with the key. A key that is
    missing was not used as long as records are kept. A key that sees only its own executions sees only itself.
    """
    return json_response(await read_key_uses(dependencies.get(Records).client, caller=caller))


@audit_router.get("/audit", response_model=CallList, response_description="A page")
async def list_calls(dependencies: Injected, caller: ListCaller, query: Annotated[AuditQuery, Query()]) -> Response:
    """List audit records of tool calls.

    Returns records of all tool calls in the namespace, newest first, with redacted arguments.
    """
    return json_response(await fetch_audit_page(dependencies.broker, caller=caller, query=query))


def _build_rows(
    dependencies: Dependencies, caller: Caller, conversation: str, report: ConversationReport, table: str
) -> dict[str, list[dict[str, object]]]:
    """Return the report's row, and the outcome of its unit, if it names one."""
    check_user(report.user, caller=caller)
    arm, outcomes = None, []
    if report.rollout is not None and report.unit is not None:
        find_arm = dependencies.get(Records).find_arm
        found = find_arm(caller.namespace, report.rollout, unit=report.unit, user=report.user)
        outcome = build_outcome(report)
        if found is not None and outcome is not None:  # others would be compared with the arms
            arm = found.arm
            outcomes = [
                build_outcome_row(
                    outcome,
                    namespace=caller.namespace,
                    caller=caller.label,
                    rollout=found.rollout,
                    uid=found.uid,
                    arm=arm,
                )
            ]
    row = build_report_row(report, namespace=caller.namespace, caller=caller.label, conversation=conversation, arm=arm)
    return {table: [row]} | ({"outcomes": outcomes} if outcomes else {})
