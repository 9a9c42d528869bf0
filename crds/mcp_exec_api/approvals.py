"""Approvals of tool calls: pending ones and decisions."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from mcp_exec_api.meta import MicroTime, Model, OpenEnum

APPROVAL_ID: Final = r"^approval-[0-9a-f]{16}$"
"""Pattern of the ids that the broker makes."""


class ApprovalChoice(StrEnum):
    """A person's decision on a tool call."""

    APPROVE = "Approve"
    DENY = "Deny"


class ApprovalDecision(Model):
    """Decision on one tool call that waits for an approval."""

    id: Annotated[str, Field(min_length=1, max_length=64)]
    """Id of the approval, from `status.approvals`."""
    decision: ApprovalChoice
    """Approve: the call is made. Deny: the call fails."""
    by: Annotated[str | None, Field(max_length=253)] = None
    """Caller who decided. The gateway sets it from the authenticated caller."""
    proof: Annotated[str | None, Field(max_length=128)] = None
    """Proof that the gateway wrote the decision. Without it the decision counts, and `by` is recorded as claimed."""
    arguments_digest: Annotated[str | None, Field(max_length=71)] = None
    """`argumentsDigest` of the approval. If set, the decision counts only for a call with these arguments."""
    comment: Annotated[str | None, Field(max_length=1024)] = None
    """Reason for the decision. If the call is denied, the code receives it in the error."""


class ApprovalState(OpenEnum):
    """State of an approval."""

    PENDING = "Pending"
    APPROVED = "Approved"
    DENIED = "Denied"
    EXPIRED = "Expired"
    """Nobody decided in time, so the call was denied."""
    WITHDRAWN = "Withdrawn"
    """The code ended or abandoned the call before anybody decided."""


class Approval(Model):
    """A tool call that needs or needed an approval."""

    id: str
    """Id of the approval. A decision in `spec.approvals` refers to it."""
    tool: str
    """Tool as SERVER.TOOL, for example `github.create_issue`."""
    arguments: str
    """Arguments of the call as JSON, with secrets and personal data redacted. Each long value is cut by itself, so the
    names of all parameters are there, at most 40. Unprintable characters are escaped."""
    arguments_digest: str = ""
    """SHA-256 of all arguments as JSON with sorted keys and without spaces: `sha256:` and 64 hexadecimal digits. The
    audit record of the call has the same."""
    arguments_bytes: int = 0
    """Bytes of that JSON."""
    arguments_complete: bool = True
    """Whether `arguments` has all arguments, except what is redacted."""
    state: ApprovalState
    """Pending: waits for a decision. Approved, Denied: decided. Expired: nobody decided in time, so the call was
    denied. Withdrawn: the code ended or abandoned the call first."""
    requested_at: MicroTime
    """Time of the call."""
    expires_at: MicroTime
    """Time when the call is denied if nobody has decided."""
    decided_by: str | None = None
    """Caller who decided. `claimed:` precedes a name that the gateway did not write."""


class PendingApproval(Approval):
    """A tool call that waits for an approval, with its execution. It is no part of a resource."""

    execution: str
    """Name of the execution."""
    namespace: str
    """Namespace of the execution."""
    caller: str | None = None
    """Caller who created the execution. `claimed:` precedes a name that nothing proves."""
    user: str | None = None
    """User on whose behalf the code runs."""
