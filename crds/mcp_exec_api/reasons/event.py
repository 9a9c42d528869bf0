"""Reasons of Events of operator and gateway, except those that are reasons of a phase or condition, too."""

from enum import StrEnum
from typing import Self


class EventReason(StrEnum):
    """Reason of an Event, with the kind of its object, its type and its meaning.

    `make generate` writes docs/reference/reasons.md from here.
    """

    about: str
    """Kind of the object."""
    type: str
    """Normal or Warning."""
    meaning: str

    def __new__(cls, value: str, about: str = "", type: str = "Normal", meaning: str = "") -> Self:
        """Create a member that equals its value and has a kind, a type and a meaning."""
        member = str.__new__(cls, value)
        member._value_, member.about, member.type, member.meaning = value, about, type, meaning
        return member

    APPROVAL_NEEDED = (
        "ApprovalNeeded",
        "CodeExecution",
        "Normal",
        "a tool call waits for an approval; `status.approvals` has it, and `mcp-exec approve` decides",
    )
    QUEUED = "Queued", "CodeExecution", "Warning", "the execution has waited long for a pod without a known problem"
    SPEC_CHANGED = (
        "SpecChanged",
        "CodeExecution",
        "Warning",
        "somebody changed fields that do not change; the run is of the first spec",
    )
    STATUS_WRITE_DELAYED = (
        "StatusWriteDelayed",
        "CodeExecution",
        "Warning",
        "the API server refuses status writes, which the operator repeats",
    )
    RECONCILE_FAILED = (
        "ReconcileFailed",
        "CodeExecution",
        "Warning",
        "a fault of the operator, which tries again; its log has the traceback",
    )
    DELETED_EARLY = (
        "DeletedEarly",
        "CodeExecution",
        "Warning",
        "finished executions were deleted before their TTL, because the namespace stores almost as many as it may",
    )
    STAGE_BEGAN = "StageBegan", "ExecutionRollout", "Normal", "a stage of a rollout began"
    RESUMED = "Resumed", "ExecutionRollout", "Normal", "a paused rollout goes on"
    NAMESPACE_TAKEN = (
        "NamespaceTaken",
        "Namespace",
        "Warning",
        "another release has the namespace, by its label `mcp-exec.dev/release` or by its Lease `mcp-exec`; remove it "
        "from the values of one of the two, or change the label",
    )
    API_KEY_ENDS = (
        "ApiKeyEnds",
        "Secret",
        "Warning",
        "an API key of the Secret ends within 14 days, or has ended in the last 14; rotate it, or revoke it",
    )
