"""Calls that wait for somebody's consent."""

from collections.abc import Awaitable, Callable

from mcp_exec_api.execution import Approval
from mcp_exec_api.grants import Grant
from mcp_exec_api.kube import Kube


class Approvals:
    """Calls that wait, and what became of those that did. An execution is watched only while a call of it waits."""

    def __init__(self, *, kube: Kube) -> None: ...

    async def consent(
        self,
        *,
        grant: Grant,
        call: str,
        tool: str,
        arguments: str,
        timeout_seconds: float,
        notice: Callable[[Approval], Awaitable[None]],
    ) -> Approval:
        """Waits until the call is approved. Each approval is for one call.

        `call` is the call's id, `arguments` the redacted JSON; `notice` tells the sandbox that it waits. Cancelling
        it withdraws. Raises Failure: NotApproved, ApprovalExpired, ExecutionEnded (cancelled, finished, or closed).
        """
        raise NotImplementedError

    def of(self, uid: str) -> list[Approval]:
        """The execution's approvals, oldest first, the newest 50."""
        raise NotImplementedError

    def close(self, uid: str) -> None:
        """The execution has ended: what waits is withdrawn."""
