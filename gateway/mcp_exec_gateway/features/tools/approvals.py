"""Approvals: decisions on pending tool calls, each appended to the execution's spec once."""

import asyncio
import logging
from typing import Any, Final

from mcp_exec_api.approvals import ApprovalChoice, ApprovalState
from mcp_exec_api.code_execution import Phase, is_finished
from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.wire.executions import NewDecision
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.core.auth.callers import Caller, may_see
from mcp_exec_gateway.core.executions.service import check_access
from mcp_exec_gateway.core.http.problems import HttpProblem, not_found, unavailable

log = logging.getLogger(__name__)

_MAX_ATTEMPTS: Final = 8
_APPEARANCE_DELAYS: Final = (0.05, 0.15, 0.3, 0.5)
"""Seconds between reads of an execution whose status lacks an approval: events and the broker show it up to a second
before the operator writes it."""
_MAX_DECISIONS: Final = 256
"""Decisions in a spec; the oldest are dropped first."""
_STATES: Final = {ApprovalChoice.APPROVE: ApprovalState.APPROVED, ApprovalChoice.DENY: ApprovalState.DENIED}


def list_approvals(execution: Object, *, attestor: Attestor) -> list[Object]:
    """Return the execution's approvals, with decisions in its spec that its status does not show yet."""
    decisions: dict[str, Object] = {}
    for decision in (execution.get("spec") or {}).get("approvals") or []:
        decisions.setdefault(decision["id"], decision)
    approvals = []
    for approval in (execution.get("status") or {}).get("approvals") or []:
        decision = decisions.get(approval["id"])
        if decision is not None and approval["state"] == ApprovalState.PENDING:
            decided_by = attestor.read_approver(decision, uid=execution["metadata"]["uid"])
            state = _STATES[ApprovalChoice(decision["decision"])].value
            approval = {**approval, "state": state, "decidedBy": decided_by}
        approvals.append(approval)
    return approvals


async def list_pending_approvals(broker: BrokerClient | None, *, caller: Caller, limit: int) -> Object:
    """Return the newest pending approvals that the caller may see, newest first, as the broker's replicas have them.

    Raises HttpProblem, a 503, if no replica answers.
    """
    if broker is None:
        return {"items": [], "complete": True}
    try:
        own = caller.label if caller.limits.sees_own_only else None
        approvals, is_complete = await broker.list_pending_approvals(caller.namespace, caller=own)
    except BrokerError as error:
        log.warning("pending approvals are not available: %s", error)
        raise unavailable("the tool broker does not answer, so that pending approvals are unknown") from error
    shown = [each for each in approvals if may_see(caller, creator=each.caller, user=each.user)]
    return {"items": [approval.to_api() for approval in shown[:limit]], "complete": is_complete}


async def decide_approval(
    kube: KubeClient,
    name: str,
    *,
    approval_id: str,
    decision: NewDecision,
    caller: Caller,
    attestor: Attestor,
) -> Object:
    """Append the decision to the execution's spec and return the approval.

    Raises HttpProblem: 404 if the execution or the approval does not exist or the caller may not see it, 409 if it is
    decided, expired or withdrawn.
    """
    key: ObjectKey = (caller.namespace, name)
    path = custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1])
    entry: dict[str, Any] = {"id": approval_id, **decision.to_api(), "by": caller.name[:253]}
    for attempt in range(_MAX_ATTEMPTS):
        try:
            execution = await _read_execution(kube, path, approval_id, caller=caller, attestor=attestor)
            approval = _find_approval(execution, key, approval_id, attestor)
            entry["proof"] = attestor.sign_decision(entry, uid=execution["metadata"]["uid"])
            earlier = (execution["spec"].get("approvals") or [])[-(_MAX_DECISIONS - 1) :]
            if attempt and entry in earlier:
                return approval  # the previous attempt was written and its response was lost
            _check_pending(execution, approval)
            _check_digest(approval, decision)
            # with the version that was read, the second of two concurrent decisions gets a 409 and reads again
            version = {"resourceVersion": execution["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "spec": {"approvals": [*earlier, entry]}}
            return _find_approval(await kube.patch(path, patch), key, approval_id, attestor)
        except ApiError as error:
            if error.code == 404:
                raise not_found(*key) from error
            if error.code != 409:
                raise
    raise unavailable(f"the execution changed during each of {_MAX_ATTEMPTS} attempts", execution=key[1])


async def _read_execution(
    kube: KubeClient, path: str, approval_id: str, *, caller: Caller, attestor: Attestor
) -> Object:
    """Return the execution, as soon as its status has the approval, or after a second.

    Raises ApiError, and HttpProblem at once if the caller may not see it.
    """
    for delay in (*_APPEARANCE_DELAYS, None):
        execution = check_access(await kube.get(path), caller=caller, attestor=attestor)
        status = execution.get("status") or {}
        is_listed = any(approval["id"] == approval_id for approval in status.get("approvals") or [])
        may_appear = bool(execution["spec"].get("tools")) and status.get("phase") == Phase.RUNNING
        if is_listed or delay is None or not may_appear:
            break
        await asyncio.sleep(delay)
    return execution


def _find_approval(execution: Object, key: ObjectKey, approval_id: str, attestor: Attestor) -> Object:
    for approval in list_approvals(execution, attestor=attestor):
        if approval["id"] == approval_id:
            return approval
    detail = f"execution {key[1]} has no approval {approval_id[:64]}"
    raise HttpProblem("not-found", 404, detail, execution=key[1])


def _check_pending(execution: Object, approval: Object) -> None:
    state, decided_by = approval["state"], approval.get("decidedBy")
    reason = ""
    if state != ApprovalState.PENDING:
        reason = f"it is {state}" + (f", by {decided_by}" if decided_by else "")
    elif str(approval["expiresAt"]) <= micro_time(now()):
        reason = f"it expired at {approval['expiresAt']}"
    elif is_finished(execution):
        reason = "the execution has ended"
    if reason:
        detail = f"approval {approval['id']} is not pending: {reason}"
        raise HttpProblem("decided", 409, detail, execution=execution["metadata"]["name"])


def _check_digest(approval: Object, decision: NewDecision) -> None:
    digest = approval.get("argumentsDigest")
    if decision.arguments_digest is not None and decision.arguments_digest != digest:
        detail = f"argumentsDigest: approval {approval['id']} is on other arguments, with the digest {digest}"
        raise HttpProblem("decided", 409, detail)
