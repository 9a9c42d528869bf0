"""Approvals as forms: the client shows its user what code wants to call, and returns the decision."""

import logging
from typing import Any

from mcp_types import ElicitRequest

from mcp_exec_api.approvals import ApprovalState
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.executions.approvals import decide_approval, list_approvals
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.mcp.forms import build_form, read_decision
from mcp_exec_gateway.mcp.request import Sender
from mcp_exec_gateway.mcp.transport.tokens import ApprovalToken

log = logging.getLogger(__name__)


def list_pending(sender: Sender, execution: Object) -> list[Object]:
    """Return the approvals of an execution that wait for a decision."""
    approvals = list_approvals(execution, attestor=sender.dependencies.attestor)
    return [approval for approval in approvals if approval["state"] == ApprovalState.PENDING]


def build_approval_form(execution: str, approval: Object) -> ElicitRequest:
    """Return the form for one approval of an execution."""
    question = f"The code of {execution} wants to call {approval['tool']}"
    return build_form(question, approval, note=f"\nWithout a decision it is denied at {approval['expiresAt']}.")


async def decide(sender: Sender, token: ApprovalToken, answer: Any) -> None:
    """Record the decision of a filled form. Raises HttpProblem if the caller may not decide."""
    decision = read_decision(answer, digest=token.digest)
    if decision is None:
        return
    caller = await sender.authorize("approve")
    sender.trace_execution(token.execution)
    dependencies = sender.dependencies
    try:
        await decide_approval(
            dependencies.kube,
            token.execution,
            approval_id=token.approval,
            decision=decision,
            caller=caller,
            attestor=dependencies.attestor,
        )
    except HttpProblem as problem:
        if problem.status not in (404, 409):
            raise
        # somebody else was faster, or the time is over: the run shows what became of the call
        log.info("a decision came too late: %s", problem.detail)
