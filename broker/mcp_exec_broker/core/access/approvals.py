"""Approvals: tool calls that wait for a person's consent.

Whoever may change the execution decides, by `spec.approvals`. The broker that holds the call watches that one object
while the call waits, and no other executions of the cluster.
"""

import asyncio
import logging
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any, Final
from weakref import WeakValueDictionary

from cachetools import TTLCache
from prometheus_client import CollectorRegistry

from mcp_exec_api.approvals import Approval, ApprovalChoice, ApprovalState, PendingApproval
from mcp_exec_api.code_execution import Phase
from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_api.meta import now
from mcp_exec_broker.core.access.quotas import WaitingTime
from mcp_exec_broker.core.errors import ErrorKind, ErrorReason, ToolCallError, build_denial
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.grants import DirectGrant, Grant
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.process.metrics import MetricsBase

log = logging.getLogger(__name__)

MAX_APPROVALS: Final = 50
"""Approvals kept of one execution."""
_MAX_PENDING: Final = 20
"""Calls of one execution that may wait at once."""
_KEEP_SECONDS: Final = 3600.0
_MAX_EXECUTIONS: Final = 10_000
_MAX_COMMENT: Final = 1024
_IDENTITY: Final = ("namespace", "name", "uid")
_FINISHED: Final = frozenset(phase.value for phase in Phase if phase.finished)


@dataclass(frozen=True, kw_only=True)
class CallArguments:
    """Arguments of a call for its approval."""

    text: str
    """Redacted JSON, cut."""
    is_complete: bool
    digest: str
    size: int
    """Bytes of the JSON that the digest is computed from."""


@dataclass(kw_only=True)
class _Decision:
    state: ApprovalState
    by: str | None = None
    comment: str | None = None
    digest: str | None = None
    """Digest of the arguments that the decision is on, if it states one."""


@dataclass(kw_only=True, eq=False)
class _ExecutionApprovals:
    """Approvals of one execution."""

    uid: str
    attestor: Attestor
    is_closed: bool = False
    past: deque[Approval] = field(default_factory=lambda: deque(maxlen=MAX_APPROVALS))
    pending: dict[str, Approval] = field(default_factory=dict)
    decisions: dict[str, asyncio.Future[_Decision]] = field(default_factory=dict)
    """Decisions that calls wait for, by approval id."""
    watch: asyncio.Task[None] | None = None

    def observe(self, item: Object, deleted: bool) -> None:
        """Apply the decisions in the execution's spec, or withdraw all requests if it has ended."""
        spec: dict[str, Any] = item.get("spec") or {}
        phase = (item.get("status") or {}).get("phase")
        is_replaced = item["metadata"].get("uid") != self.uid
        if deleted or is_replaced or spec.get("cancelRequested") or phase in _FINISHED:
            self.withdraw_all()
            return
        for decision in spec.get("approvals") or []:
            approved = decision.get("decision") == ApprovalChoice.APPROVE
            self.settle(
                str(decision.get("id")),
                _Decision(
                    state=ApprovalState.APPROVED if approved else ApprovalState.DENIED,
                    by=self.attestor.read_approver(decision, uid=self.uid),
                    comment=decision.get("comment"),
                    digest=decision.get("argumentsDigest"),
                ),
            )

    def settle(self, id: str, decision: _Decision) -> None:
        """Set the decision on a request; only the first one counts, and none on other arguments."""
        future, request = self.decisions.get(id), self.pending.get(id)
        if future is None or request is None or future.done():
            return
        if decision.digest is None or decision.digest == request.arguments_digest:
            future.set_result(decision)

    def withdraw_all(self) -> None:
        """Withdraw all requests that wait."""
        for id in list(self.decisions):
            self.settle(id, _Decision(state=ApprovalState.WITHDRAWN))


def find_consent(grant: DirectGrant, *, tool: str, arguments: CallArguments) -> Approval:
    """Return the approval that the caller obtained for a direct call of SERVER.TOOL before it sent the call.

    Raises ToolCallError (ApprovalRequired) with what is to be approved, if there is none on these arguments.
    """
    given = grant.approved
    if given is None or (given.tool, given.arguments_digest) != (tool, arguments.digest):
        shown = {
            "tool": tool,
            "arguments": arguments.text,
            "argumentsComplete": arguments.is_complete,
            "argumentsDigest": arguments.digest,
            "argumentsBytes": arguments.size,
        }
        raise ToolCallError(
            ErrorKind.DENIED,
            f"{tool} needs an approval, and a direct call does not wait for one",
            reason=ErrorReason.APPROVAL_REQUIRED,
            approval=shown,
        )
    approval = _build_approval(tool, arguments, seconds=0)
    return approval.model_copy(update={"state": ApprovalState.APPROVED, "decided_by": given.by})


def _build_approval(tool: str, arguments: CallArguments, *, seconds: float) -> Approval:
    """Return a pending approval that expires after so many seconds."""
    moment = now()
    return Approval(
        id=f"approval-{secrets.token_hex(8)}",
        tool=tool,
        arguments=arguments.text,
        arguments_digest=arguments.digest,
        arguments_bytes=arguments.size,
        arguments_complete=arguments.is_complete,
        state=ApprovalState.PENDING,
        requested_at=moment,
        expires_at=moment + timedelta(seconds=seconds),
    )


class ApprovalMetrics(MetricsBase):
    """Metrics of approvals."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__("mcp_exec_broker_", registry)
        self.pending = self.gauge("approvals_pending", "Calls that wait for an approval.")
        self.decided = self.counter("approvals", "Calls that needed an approval, by its final state.", "state")
        for state in ApprovalState:
            if state is not ApprovalState.PENDING:
                self.decided.labels(state=state.value)


class Approvals:
    """Pending approvals, and past ones for an hour. Each approval is valid for one call."""

    def __init__(
        self,
        *,
        kube: KubeClient,
        attestor: Attestor,
        registry: CollectorRegistry | None = None,
        max_pending: int = 512,
    ) -> None:
        self._kube = kube
        self._attestor = attestor
        self._max_pending = max_pending
        self._waiting: Counter[str] = Counter()
        """Calls that wait, by namespace."""
        self._listed: dict[str, PendingApproval] = {}
        """Approvals of the calls that wait, by id, oldest first."""
        self._recent: TTLCache[str, _ExecutionApprovals] = TTLCache(_MAX_EXECUTIONS, _KEEP_SECONDS)
        self._referenced: WeakValueDictionary[str, _ExecutionApprovals] = WeakValueDictionary()
        """Also those that were evicted while a call waited."""
        self._metrics = ApprovalMetrics(registry)

    async def wait_for_approval(
        self,
        *,
        grant: Grant,
        tool: str,
        arguments: CallArguments,
        timeout_seconds: float,
        waiting: WaitingTime,
        notify: Callable[[Approval], Awaitable[None]],
    ) -> Approval:
        """Wait until the call is approved, and return the approval with the name of who approved it.

        `tool` is SERVER.TOOL; `notify` reports the pending approval to the sandbox. `waiting` counts the time of all
        calls of the execution, which its grant limits. Cancelling the wait withdraws the request.

        Raises ToolCallError: NotApproved, ApprovalExpired, BudgetExceeded or RateLimited if too many calls wait
        already, and ExecutionEnded if the execution was cancelled, finished or deleted.
        """
        execution = self._renew(grant.execution)
        if execution.is_closed:
            raise _build_ended_error()
        if len(execution.decisions) >= _MAX_PENDING:
            raise build_denial(
                ErrorReason.BUDGET_EXCEEDED, f"{_MAX_PENDING} calls of the execution wait for an approval already"
            )
        self._check_waiting(grant.namespace)
        timeout_seconds = min(timeout_seconds, _compute_rest(grant, waiting))
        request = _build_approval(tool, arguments, seconds=timeout_seconds)
        # without the call's id, which the code chooses
        log.info("a call of %s waits for an approval", tool, extra={"approval": request.id, "execution": grant.name})
        decision = _Decision(state=ApprovalState.WITHDRAWN)
        async with self._register(execution, request, grant) as future:
            try:
                with waiting.wait(timeout_seconds):
                    async with asyncio.timeout(timeout_seconds):
                        await notify(request)
                        decision = await future
            except TimeoutError:
                decision = _Decision(state=ApprovalState.EXPIRED)
            finally:
                approval = request.model_copy(update={"state": decision.state, "decided_by": decision.by})
                execution.past.append(approval)
                self._metrics.decided.labels(state=decision.state.value).inc()
        if decision.state is not ApprovalState.APPROVED:
            raise _build_error(tool, decision, timeout_seconds)
        return approval

    def list_approvals(self, uid: str) -> list[Approval]:
        """Return the execution's newest 50 approvals, oldest first."""
        execution = self._find(uid)
        if execution is None:
            return []
        approvals = sorted([*execution.past, *execution.pending.values()], key=lambda approval: approval.requested_at)
        return approvals[-MAX_APPROVALS:]

    def list_pending(self, namespace: str, *, caller: str | None = None, limit: int) -> list[PendingApproval]:
        """Return the newest approvals of calls that wait in a namespace, or of one caller there, newest first."""
        newest = (
            item
            for item in reversed(self._listed.values())
            if item.namespace == namespace and caller in (None, item.caller)
        )
        return list(islice(newest, limit))

    def close_execution(self, uid: str) -> None:
        """Withdraw the execution's requests, and accept no more."""
        execution = self._renew(uid)
        execution.is_closed = True
        execution.withdraw_all()

    def _check_waiting(self, namespace: str) -> None:
        """Raise ToolCallError if too many calls wait. One namespace gets half, so that others can wait, too."""
        for waiting, allowed, place in (
            (self._waiting[namespace], (self._max_pending + 1) // 2, f"namespace {namespace}"),
            (self._waiting.total(), self._max_pending, "this broker"),
        ):
            if waiting >= allowed:
                message = f"{waiting} calls wait for an approval, which is the limit of {place}"
                raise build_denial(ErrorReason.RATE_LIMITED, message)

    def _find(self, uid: str) -> _ExecutionApprovals | None:
        return self._recent.get(uid) or self._referenced.get(uid)

    def _renew(self, uid: str) -> _ExecutionApprovals:
        execution = self._find(uid) or _ExecutionApprovals(uid=uid, attestor=self._attestor)
        self._recent[uid] = self._referenced[uid] = execution
        return execution

    @asynccontextmanager
    async def _register(
        self, execution: _ExecutionApprovals, request: Approval, grant: Grant
    ) -> AsyncIterator[asyncio.Future[_Decision]]:
        """Keep the request among the pending ones and its execution watched; yield the future of the decision."""
        future: asyncio.Future[_Decision] = asyncio.get_running_loop().create_future()
        execution.decisions[request.id] = future
        execution.pending[request.id] = request
        self._listed[request.id] = PendingApproval(
            **dict(request), execution=grant.name, namespace=grant.namespace, caller=grant.caller, user=grant.user
        )
        self._metrics.pending.inc()
        self._waiting[grant.namespace] += 1
        if execution.watch is None:
            reflector = Reflector(
                kube=self._kube,
                path=custom_resource_path(EXECUTIONS, namespace=grant.namespace),
                fields=f"metadata.name={grant.name}",
                on_change=execution.observe,
                transform=lambda item: {"metadata": {name: item["metadata"].get(name) for name in _IDENTITY}},
            )
            execution.watch = asyncio.create_task(
                _watch(reflector, execution), name=f"approvals of {grant.namespace}/{grant.name}"
            )
        try:
            yield future
        finally:
            del execution.decisions[request.id], execution.pending[request.id], self._listed[request.id]
            self._metrics.pending.dec()
            self._waiting[grant.namespace] -= 1
            if not self._waiting[grant.namespace]:
                del self._waiting[grant.namespace]
            if not execution.decisions and execution.watch is not None:
                execution.watch.cancel()
                execution.watch = None


async def _watch(reflector: Reflector, execution: _ExecutionApprovals) -> None:
    async with reflector.run_in_background():
        await reflector.synced.wait()
        if not reflector.items:
            execution.withdraw_all()
        await asyncio.Event().wait()


def _compute_rest(grant: Grant, waiting: WaitingTime) -> float:
    """Return the seconds that calls of the execution may still wait. Raises ToolCallError if there are none."""
    rest = grant.approval_seconds - waiting.seconds
    if rest <= 0:
        message = f"the execution may wait {grant.approval_seconds} s for approvals in all (approvalTimeoutSeconds)"
        used = ", and has waited them" if grant.approval_seconds else ""
        raise build_denial(ErrorReason.APPROVAL_EXPIRED, f"{message}{used}")
    return rest


def _build_error(tool: str, decision: _Decision, timeout_seconds: float) -> ToolCallError:
    if decision.state is ApprovalState.DENIED:
        by = f" by {decision.by}" if decision.by else ""
        comment = f": {decision.comment[:_MAX_COMMENT]}" if decision.comment else ""
        return build_denial(ErrorReason.NOT_APPROVED, f"{tool} was not approved{by}{comment}")
    if decision.state is ApprovalState.EXPIRED:
        return build_denial(
            ErrorReason.APPROVAL_EXPIRED, f"nobody approved {tool} within {round(timeout_seconds, 1):g} s"
        )
    return _build_ended_error()


def _build_ended_error() -> ToolCallError:
    return build_denial(ErrorReason.EXECUTION_ENDED, "the execution has ended")
