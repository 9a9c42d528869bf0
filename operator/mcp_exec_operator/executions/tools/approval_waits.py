"""Time in which calls of an execution wait for approvals, as the broker measures it. It extends the time limit."""

from dataclasses import dataclass, field
from typing import Final

from mcp_exec_common.broker.client import ApprovalWait, ExecutionCalls

_MAX_PROCESSES: Final = 64
"""Processes of the broker that are known of one execution: one, and one more for each restart."""


@dataclass(kw_only=True, eq=False)
class ApprovalWaits:
    """Waits of one execution. What was measured once stays, also if the broker restarts and has forgotten it."""

    limit_seconds: float
    """`approvalTimeoutSeconds` of the execution."""
    recorded_seconds: float = 0.0
    """Waits that the status has, from an earlier operator."""
    _newest: dict[str, ApprovalWait] = field(default_factory=dict)
    """The last measure of each process of the broker."""

    def observe(self, calls: ExecutionCalls) -> None:
        """Take in a response of the broker."""
        if calls.tool_calls.complete:  # a process that is not there any more has no call that waits
            self._newest = {
                process: wait.model_copy(update={"remaining_seconds": 0.0}) for process, wait in self._newest.items()
            }
        for wait in calls.waits:
            if wait.process in self._newest or len(self._newest) < _MAX_PROCESSES:
                self._newest[wait.process] = wait

    @property
    def seconds(self) -> float:
        """Seconds until the last response."""
        measured = sum(wait.waited_seconds for wait in self._newest.values())
        return min(max(measured, self.recorded_seconds), self.limit_seconds)

    @property
    def extension_seconds(self) -> float:
        """Seconds that waits may take in all, if each of the calls that wait now waits until it is denied."""
        remaining = max((wait.remaining_seconds for wait in self._newest.values()), default=0.0)
        return min(self.seconds + remaining, self.limit_seconds)
