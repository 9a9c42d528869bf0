"""Arguments of the operations that a gateway and an API server have in common."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mcp_exec_client.cli.options import Object

NOT_OBSERVED: Final = "NotObserved"
"""Reason of an object that no operator has observed."""
RolloutAction: TypeAlias = Literal["promote", "pause", "resume", "abort"]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which executions to list."""

    phase: str | None = None
    caller: str | None = None
    labels: str = ""
    """Label selector."""
    limit: int = 100


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Decision on a tool call that waits for an approval."""

    choice: Literal["Approve", "Deny"]
    comment: str | None = None
    arguments_digest: str | None = None
    """`argumentsDigest` of the approval that was read."""


def is_unobserved(execution: Object) -> bool:
    """Return whether an execution, or a `status` event, has been seen by no operator."""
    return execution.get("phase") in (None, "", "Pending") and execution.get("reason") == NOT_OBSERVED
