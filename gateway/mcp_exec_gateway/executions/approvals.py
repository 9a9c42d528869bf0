"""Decisions on tool calls that wait for somebody's consent: appended to the execution's spec, each once."""

from typing import Annotated, Any, Final

from pydantic import Field

from mcp_exec_api.approvals import ApprovalChoice, ApprovalState
from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_api.execution_state import is_finished
from mcp_exec_api.meta import Model, micro_time, now
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.http.problems import Problem, not_found, unavailable

_ATTEMPTS: Final = 8
_MOST: Final = 256
"""Decisions that a spec may hold."""
_STATES: Final = {ApprovalChoice.APPROVE: ApprovalState.APPROVED, ApprovalChoice.DENY: ApprovalState.DENIED}


class NewDecision(Model):
    """Whether a tool call that waits may be made."""

    decision: ApprovalChoice
    """Approve or Deny."""
    comment: Annotated[str | None, Field(max_length=1024)] = None
    """Why; the code sees it where the call is denied."""


def approvals_view(execution: Object) -> list[Object]:
    """The execution's approvals, with what is decided in its spec and has not got to its status yet."""
    decided: dict[str, Object] = {}
    for each in (execution.get("spec") or {}).get("approvals") or []:
        decided.setdefault(each["id"], each)
    found = []
    for approval in (execution.get("status") or {}).get("approvals") or []:
        word = decided.get(approval["id"])
        if word is not None and approval["state"] == ApprovalState.PENDING:
            by = {"decidedBy": word["by"]} if word.get("by") else {}
            approval = {**approval, "state": _STATES[ApprovalChoice(word["decision"])].value, **by}
        found.append(approval)
    return found


async def decide(kube: KubeClient, key: ObjectKey, *, id: str, new: NewDecision, by: str) -> Object:
    """Writes the decision down and returns the approval.

    Raises Problem: 404 where there is no such execution or approval, 409 where it is decided, void or withdrawn.
    """
    path = custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1])
    word: dict[str, Any] = {"id": id, **new.to_api(), "by": by[:253]}
    for attempt in range(_ATTEMPTS):
        try:
            execution = await kube.get(path)
            approval = _approval(execution, key, id)
            before = (execution["spec"].get("approvals") or [])[-(_MOST - 1) :]
            if attempt and word in before:
                return approval  # it was written, and the answer was lost
            _check_open(execution, approval)
            # by the version that was looked at: of two that decide at once, one has to look again
            version = {"resourceVersion": execution["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "spec": {"approvals": [*before, word]}}
            return _approval(await kube.patch(path, patch), key, id)
        except ApiError as error:
            if error.code == 404:
                raise not_found(*key) from error
            if error.code != 409:
                raise
    raise unavailable("the execution changes too fast", execution=key[1])


def _approval(execution: Object, key: ObjectKey, id: str) -> Object:
    for approval in approvals_view(execution):
        if approval["id"] == id:
            return approval
    raise Problem("not-found", 404, f"execution {key[1]} has no approval {id[:64]}", execution=key[1])


def _check_open(execution: Object, approval: Object) -> None:
    state, who = approval["state"], approval.get("decidedBy")
    why = ""
    if state != ApprovalState.PENDING:
        why = f"it is {state}" + (f", by {who}" if who else "")
    elif str(approval["expiresAt"]) <= micro_time(now()):
        why = f"it expired at {approval['expiresAt']}"
    elif is_finished(execution):
        why = "the execution has ended"
    if why:
        detail = f"approval {approval['id']} can't be decided any more: {why}"
        raise Problem("decided", 409, detail, execution=execution["metadata"]["name"])
