"""Decisions that a client's user makes on the approvals of a run, in revision 2026-07-28 with the repeated request."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mcp_types import CallToolRequestParams

from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.auth.callers import InsufficientScope
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field, not_found
from mcp_exec_gateway.features.mcp.abandoned_runs import AbandonedRuns, Departure
from mcp_exec_gateway.features.mcp.forms import decide, has_decision
from mcp_exec_gateway.features.mcp.request import Sender
from mcp_exec_gateway.features.mcp.transport.tokens import ApprovalToken, ResumePoint

Decisions = list[tuple[ApprovalToken, Any]]
"""Filled forms that are not recorded yet, each with the approval that it answers."""


async def find_own_run(sender: Sender, name: str) -> Object:
    """Return an execution that the caller created. Raises HttpProblem, a 404 for one of somebody else as well."""
    execution = await sender.dependencies.executions.find(name, caller=sender.caller)
    if sender.dependencies.attestor.read_caller(execution) != sender.caller.label:
        raise not_found(sender.namespace, name)
    return execution


async def check_decisions(sender: Sender, params: Mapping[str, Any]) -> None:
    """Raise HttpProblem if a request carries a decision that its sender may not make.

    Only the status of a response leads a client to another token, and a response may have begun when a decision is
    recorded.
    """
    if not has_decision(params):
        return
    try:
        await sender.authorize("approve")
    except InsufficientScope:
        with suppress(HttpProblem):  # a form without a run, or a run of somebody else
            point = ResumePoint.parse(str(params.get("requestState")), field="requestState")
            await find_own_run(sender, point.execution)
            # clients that repeat the call, and not this request, after they have another token get the same run
            abandoned, key = sender.dependencies.get(AbandonedRuns), (sender.namespace, point.execution)
            await abandoned.leave(key, holder=None, departure=Departure.CONTINUE)
        raise


def read_decisions(params: CallToolRequestParams, point: ResumePoint) -> Decisions:
    """Return the decisions that a client sends with a request's state."""
    digests = dict(point.asked)
    decisions: Decisions = []
    for approval, response in (params.input_responses or {}).items():
        if approval not in digests:
            raise invalid_field("inputResponses", f"{approval[:64]}: the server did not ask for this")
        token = ApprovalToken(execution=point.execution, approval=approval, digest=digests[approval])
        decisions.append((token, response.model_dump(by_alias=True, mode="json")))
    return decisions


async def record_decisions(sender: Sender, decisions: Decisions) -> None:
    """Record each decision once. Raises HttpProblem if the caller may not decide."""
    while decisions:
        await decide(sender, *decisions.pop(0))
