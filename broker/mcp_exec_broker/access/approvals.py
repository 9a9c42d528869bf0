"""Calls that wait for somebody's consent.

Whoever may change the execution decides, by `spec.approvals`; the broker that holds the call watches that one object
while a call of it waits, and nothing else of the cluster's executions.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from mcp_exec_api.approvals import Approval, ApprovalChoice, ApprovalState
from mcp_exec_api.code_execution import Phase
from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_api.meta import now
from mcp_exec_broker.errors import ErrorReason, ToolCallError, build_denial
from mcp_exec_broker.recent import Recent
from mcp_exec_common.broker.grants import Grant
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector

log = logging.getLogger(__name__)

MAX_APPROVALS: Final = 50
"""Approvals that are remembered of one execution."""
_MAX_PENDING: Final = 20
_KEEP_SECONDS: Final = 3600.0
_KEEP: Final = 10_000
_MAX_COMMENT: Final = 1024
_FINISHED: Final = frozenset(phase.value for phase in Phase if phase.finished)


@dataclass(kw_only=True)
class _Outcome:
    state: ApprovalState
    by: str | None = None
    comment: str | None = None


@dataclass(kw_only=True, eq=False)
class _Execution:
    """What is known of the approvals of one execution."""

    uid: str
    closed: bool = False
    past: deque[Approval] = field(default_factory=lambda: deque(maxlen=MAX_APPROVALS))
    pending: dict[str, Approval] = field(default_factory=dict)
    waits: dict[str, asyncio.Future[_Outcome]] = field(default_factory=dict)
    watch: asyncio.Task[None] | None = None

    def on_change(self, item: Object, deleted: bool) -> None:
        """The object has changed: decides on calls, or gives them all up."""
        spec: dict[str, Any] = item.get("spec") or {}
        phase = (item.get("status") or {}).get("phase")
        other = item["metadata"].get("uid") != self.uid
        if deleted or other or spec.get("cancelRequested") or phase in _FINISHED:
            self.withdraw()
            return
        for decision in spec.get("approvals") or []:
            approved = decision.get("decision") == ApprovalChoice.APPROVE
            self.settle(
                str(decision.get("id")),
                _Outcome(
                    state=ApprovalState.APPROVED if approved else ApprovalState.DENIED,
                    by=decision.get("by"),
                    comment=decision.get("comment"),
                ),
            )

    def settle(self, id: str, outcome: _Outcome) -> None:
        """The first outcome of a call counts."""
        waits = self.waits.get(id)
        if waits is not None and not waits.done():
            waits.set_result(outcome)

    def withdraw(self) -> None:
        """Gives up all calls that wait."""
        for id in list(self.waits):
            self.settle(id, _Outcome(state=ApprovalState.WITHDRAWN))


class Approvals:
    """Calls that wait, and what became of those that did, for an hour. Each approval is for one call."""

    def __init__(self, *, kube: KubeClient, registry: CollectorRegistry | None = None) -> None:
        self._kube = kube
        registry = registry or CollectorRegistry()
        self._kept: Recent[str, _Execution] = Recent(
            keep_seconds=_KEEP_SECONDS, keep=_KEEP, held=lambda execution: bool(execution.waits)
        )
        self._pending = Gauge("mcp_exec_broker_approvals_pending", "Calls that wait for consent.", registry=registry)
        self._decided = Counter(
            "mcp_exec_broker_approvals",
            "Calls that needed consent, by what became of them.",
            ["state"],
            registry=registry,
        )
        for state in ApprovalState:
            if state is not ApprovalState.PENDING:
                self._decided.labels(state=state.value)

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
        """Waits until the call is approved, and returns the approval with who did.

        `call` is the call's id, `tool` SERVER.TOOL, `arguments` the redacted JSON; `notice` tells the sandbox that it
        waits. Cancelling it withdraws. Raises Failure: NotApproved, ApprovalExpired, BudgetExceeded where too many
        wait already, and ExecutionEnded where the execution was cancelled, finished or deleted meanwhile.
        """
        execution = self._of(grant.execution)
        if execution.closed:
            raise build_denial(ErrorReason.EXECUTION_ENDED, "the execution has ended")
        if len(execution.waits) >= _MAX_PENDING:
            raise build_denial(
                ErrorReason.BUDGET_EXCEEDED, f"{_MAX_PENDING} calls of the execution wait for consent already"
            )
        requested = now()
        asked = Approval(
            id=f"approval-{secrets.token_hex(8)}",
            tool=tool,
            arguments=arguments,
            state=ApprovalState.PENDING,
            requested_at=requested,
            expires_at=requested + timedelta(seconds=timeout_seconds),
        )
        log.info("call %s of %s waits for consent", call, tool, extra={"approval": asked.id, "execution": grant.name})
        outcome = _Outcome(state=ApprovalState.WITHDRAWN)
        async with self._waiting(execution, asked, grant) as waits:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await notice(asked)
                    outcome = await waits
            except TimeoutError:
                outcome = _Outcome(state=ApprovalState.EXPIRED)
            finally:
                settled = asked.model_copy(update={"state": outcome.state, "decided_by": outcome.by})
                execution.past.append(settled)
                self._decided.labels(state=outcome.state.value).inc()
        return _checked(settled, outcome, timeout_seconds)

    def of(self, uid: str) -> list[Approval]:
        """The execution's approvals, oldest first, the newest 50."""
        execution = self._kept.get(uid)
        if execution is None:
            return []
        found = sorted([*execution.past, *execution.pending.values()], key=lambda approval: approval.requested_at)
        return found[-MAX_APPROVALS:]

    def close(self, uid: str) -> None:
        """The execution has ended: what waits is withdrawn, and nothing waits any more."""
        execution = self._of(uid)
        execution.closed = True
        execution.withdraw()

    def _of(self, uid: str) -> _Execution:
        execution = self._kept.get(uid) or _Execution(uid=uid)
        self._kept.put(uid, execution)
        return execution

    @asynccontextmanager
    async def _waiting(
        self, execution: _Execution, asked: Approval, grant: Grant
    ) -> AsyncIterator[asyncio.Future[_Outcome]]:
        """The call is among those that wait, and its execution is watched."""
        waits: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        execution.waits[asked.id] = waits
        execution.pending[asked.id] = asked
        self._pending.inc()
        if execution.watch is None:
            reflector = Reflector(
                kube=self._kube,
                path=custom_resource_path(EXECUTIONS, namespace=grant.namespace),
                fields=f"metadata.name={grant.name}",
                on_change=execution.on_change,
                transform=lambda item: {"metadata": item["metadata"]},
            )
            execution.watch = asyncio.create_task(
                _watch(reflector, execution), name=f"approvals of {grant.namespace}/{grant.name}"
            )
        try:
            yield waits
        finally:
            del execution.waits[asked.id], execution.pending[asked.id]
            self._pending.dec()
            if not execution.waits and execution.watch is not None:
                execution.watch.cancel()
                execution.watch = None


async def _watch(reflector: Reflector, execution: _Execution) -> None:
    async with reflector.run_in_background():
        await reflector.synced.wait()
        if not reflector.items:
            execution.withdraw()
        await asyncio.Event().wait()


def _checked(approval: Approval, outcome: _Outcome, timeout_seconds: float) -> Approval:
    if outcome.state is ApprovalState.APPROVED:
        return approval
    raise _refusal(approval, outcome, timeout_seconds)


def _refusal(approval: Approval, outcome: _Outcome, timeout_seconds: float) -> ToolCallError:
    if outcome.state is ApprovalState.DENIED:
        by = f" by {outcome.by}" if outcome.by else ""
        why = f": {outcome.comment[:_MAX_COMMENT]}" if outcome.comment else ""
        return build_denial(ErrorReason.NOT_APPROVED, f"{approval.tool} was not approved{by}{why}")
    if outcome.state is ApprovalState.EXPIRED:
        return build_denial(
            ErrorReason.APPROVAL_EXPIRED, f"nobody approved {approval.tool} within {timeout_seconds:g} s"
        )
    return build_denial(ErrorReason.EXECUTION_ENDED, "the execution has ended")
