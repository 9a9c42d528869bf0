"""Runs an execution in its pod: hands over the code, follows the events to their end, tells why where there is none."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import CodeExecutionSpec, Durations, ExecutionError, Phase, Reason
from mcp_exec_api.meta import now
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import ApprovalEvent, Event, SandboxError, SandboxUsed
from mcp_exec_operator.executions.binder import Lease, job_of, longest_run
from mcp_exec_operator.executions.outcome import Decided
from mcp_exec_operator.executions.output import Collector
from mcp_exec_operator.executions.record import Entry
from mcp_exec_operator.executions.status import Outcome, cancelled, failed
from mcp_exec_operator.executions.tool_calls import Calls
from mcp_exec_operator.executions.tools import Tooling
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.pods.manifest import busy_patch
from mcp_exec_operator.pods.nodes import NodeCache
from mcp_exec_operator.pods.status import PodProblem, loss_of

log = logging.getLogger(__name__)

_LABEL_AFTER_SECONDS: Final = 0.1
"""How long a run lasts before its pod is labelled: most are over by then, and one API write cheaper."""
_CANCEL_SECONDS: Final = 10.0
"""How long a cancelled run may take to say its end."""
_LAST_WORDS_SECONDS: Final = 1.0
"""How long a pod that is lost is still listened to: its end may be under way."""
_QUESTION_SECONDS: Final = 1.0
"""Between questions to a sandbox on a node that is lost: it is given up when two in a row have no answer."""
_PAUSES: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 2.0)
"""Between attempts to reach a sandbox whose stream broke."""


class _Lost(Exception):
    """The sandbox does not answer."""


@dataclass(kw_only=True, eq=False)
class Run:
    """One run, from the hand-over to its outcome."""

    entry: Entry
    lease: Lease
    spec: CodeExecutionSpec
    api: OperatorApi
    sandboxes: SupervisorClient
    tasks: TaskRegistry
    nodes: NodeCache
    tooling: Tooling
    collector: Collector = field(init=False)
    calls: Calls | None = None
    """What watches its calls; None if it may call no tool."""
    _accepted: bool = False
    _cancelling: bool = False
    """Whether its supervisor is being asked to end it."""
    _bound: asyncio.Timeout | None = None
    _over: bool = False
    _questioned: bool = False
    """Whether its supervisor is being asked, or was asked in vain, whether it lives on a node that is lost."""
    _silent: bool = False
    """Whether it did not answer."""

    def __post_init__(self) -> None:
        self.collector = Collector(limit=self.spec.limits.output_bytes)

    async def outcome(self) -> Outcome:
        """How it ended. Raises Decided where it need not begin."""
        if not self.lease.pod.address and (loss := await self._find()) is not None:
            return self._lost(loss)
        sandbox = self.sandboxes.get_connection(
            namespace=self.entry.namespace, pod=self.lease.pod.name, address=self.lease.pod.address
        )
        await self._check(sandbox)
        if self.spec.tools and self.lease.tools is None and not self._accepted:
            await self._equip(sandbox)
        self.lease.pod.wakeup = self.entry.wakeup
        observer = self.tasks.spawn(self._observe(sandbox), name=f"observe {self.lease.pod.name}")
        try:
            async with asyncio.timeout(longest_run(self.spec)) as self._bound:
                await self._follow(sandbox)
        except (_Lost, TimeoutError) as error:
            return await self._broken_off(error, sandbox)
        finally:
            self._over = True
            observer.cancel()
        return self._ended()

    async def _observe(self, sandbox: SupervisorConnection) -> None:
        """React to a cancellation, to the loss of the pod and to its node, until cancelled. Label the pod meanwhile."""
        label_at = None if self.lease.pod.labelled_busy else monotonic() + _LABEL_AFTER_SECONDS
        while True:
            self.entry.wakeup.clear()
            if self.lease.pod.lost:
                self._hasten(_LAST_WORDS_SECONDS)
            if self.entry.cancel_requested and not self._cancelling:
                self._cancelling = True
                self._begin_cancel(sandbox)
            self._doubt(sandbox)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if label_at is None else max(0.0, label_at - monotonic())):
                    await self.entry.wakeup.wait()
            if label_at is not None and monotonic() >= label_at:
                label_at = None
                self.tasks.spawn(self._label(), name=f"label {self.lease.pod.name}")

    async def _follow(self, sandbox: SupervisorConnection) -> None:
        """Reads events until the last, over as many connections as that takes."""
        failures = 0
        while True:
            before = self.collector.seq
            try:
                async with aclosing(self._stream(sandbox)) as events:
                    async for event in events:
                        if self.collector.add(event):
                            return
                        if isinstance(event, ApprovalEvent) and self.calls is not None:
                            self.calls.hint()
            except SandboxUsed as used:
                if used.id != self.entry.uid:
                    raise _Lost(str(used)) from used
                self._accepted = self.collector.replayed = True
            except SandboxError as error:
                failures = failures + 1 if self.collector.seq == before else 1
                if self.lease.pod.lost or failures > len(_PAUSES):
                    raise _Lost(str(error)) from error
                log.info("the stream of a run broke: %s", error, extra=self.entry.log_fields)
                await asyncio.sleep(_PAUSES[failures - 1])

    def _stream(self, sandbox: SupervisorConnection) -> AsyncGenerator[Event, None]:
        seconds = longest_run(self.spec)
        if self._accepted or self.collector.seq:
            return sandbox.follow_events(from_seq=self.collector.seq + 1, timeout_seconds=seconds)
        if (offer := self.lease.offer) is not None:
            self.lease.offer = None
            return offer.run()
        # a sandbox accepts one execution in its life: to ask once more, of the same one, can't run anything twice
        return sandbox.run(job_of(self.entry, self.spec, self.lease.tools), timeout_seconds=seconds)

    def _hasten(self, seconds: float) -> None:
        """Gives the run no more than so many seconds from now."""
        if self._bound is None or self._over:
            return
        when, soon = self._bound.when(), asyncio.get_running_loop().time() + seconds
        if when is not None and soon < when:
            self._bound.reschedule(soon)

    def _doubt(self, sandbox: SupervisorConnection) -> None:
        """Where its node is lost, finds out whether it goes on none the less, as it does when a kubelet restarts."""
        if not self._questioned and self.nodes.loss_reason(self.lease.pod.node):
            self._questioned = True
            self.tasks.spawn(self._question(sandbox), name=f"question {self.lease.pod.name}")

    async def _question(self, sandbox: SupervisorConnection) -> None:
        failures = 0
        while not self._over and self.nodes.loss_reason(self.lease.pod.node):
            try:
                await sandbox.get_execution()
                failures = 0
            except SandboxError:
                failures += 1
            if failures > 1:
                self._silent = True
                self._hasten(0.0)
                return
            await asyncio.sleep(_QUESTION_SECONDS)
        self._questioned = False

    def _begin_cancel(self, sandbox: SupervisorConnection) -> None:
        self._hasten(_CANCEL_SECONDS)
        self.tasks.spawn(self._cancel(sandbox), name=f"cancel {self.entry.name}")

    async def _cancel(self, sandbox: SupervisorConnection) -> None:
        """Asks the supervisor to end the run, again where it was asked before it had begun."""
        for pause in _PAUSES:
            try:
                await sandbox.cancel()
            except SandboxError as error:
                log.info("a run was not cancelled: %s", error, extra=self.entry.log_fields)
            await asyncio.sleep(pause)
            if self._over:
                return

    async def _find(self) -> PodProblem | None:
        """Looks up a pod of which only the name is known. Returns why it is lost, if it is. Raises ApiError."""
        name, inventory = self.lease.pod.name, self.lease.pool.pods
        item = await self.api.get_pod(self.entry.namespace, name)
        if item is not None:
            inventory.observe(item, now=monotonic())
            self.lease.pod = inventory.adopt(name, now=monotonic())
        return None if self.lease.pod.address else self._loss(item)

    async def _check(self, sandbox: SupervisorConnection) -> None:
        """Raises Decided where the code has not begun to run and must not: cancelled, or no longer what was bound."""
        changed = self.entry.status.get("specDigest") != self.entry.digest
        if not changed and not self.entry.cancel_requested:
            return
        try:
            idle = (await sandbox.get_execution())[0] == "idle"
        except SandboxError:
            idle = False
        if idle and self.entry.cancel_requested:
            raise Decided(cancelled())
        if idle:
            raise Decided(failed(Reason.REJECTED, "the spec was changed between its binding and its run"))
        # what has been accepted is what was bound: it is followed, and nothing is handed over again
        self._accepted = self.collector.replayed = True

    async def _equip(self, sandbox: SupervisorConnection) -> None:
        """Where another operator bound it and did not hand it over, makes what its job says of tools; or Decided."""
        try:
            idle = (await sandbox.get_execution())[0] == "idle"
        except SandboxError:
            idle = False
        if not idle:
            self._accepted = self.collector.replayed = True
            return
        pool, seconds = self.lease.pool, longest_run(self.spec)
        self.lease.tools = await self.tooling.equip(
            self.entry, self.spec, pool=pool, pod=self.lease.pod, run_seconds=seconds
        )

    async def _label(self) -> None:
        patch = busy_patch(execution_name=self.entry.name, execution_uid=self.entry.uid)
        try:
            await self.api.patch_pod(self.entry.namespace, self.lease.pod.name, patch)
        except ApiError as error:
            # the execution's status says it too, and that is what counts
            if error.code != 404:
                log.warning("a pod was not labelled: %s", error, extra=self.entry.log_fields)

    async def _broken_off(self, error: Exception, sandbox: SupervisorConnection) -> Outcome:
        """Why there is no end: by the pod's state, by who cancelled it, or by the time."""
        try:
            pod = await self.api.get_pod(self.entry.namespace, self.lease.pod.name)
        except ApiError:
            pod = self.lease.pod.newest
        answers = isinstance(error, TimeoutError) and pod is not None and not self.lease.pod.lost and not self._silent
        if self.entry.cancel_requested and answers:
            return self._partial(Phase.CANCELLED, Reason.CANCELLED, "cancelled; it did not end by itself")
        if answers and self.collector.seq:
            seconds = self.spec.timeout_seconds
            return self._partial(Phase.TIMED_OUT, Reason.TIMEOUT, f"it did not end within {seconds} s")
        problem = self._loss(pod)
        if problem.reason is Reason.STREAM_BROKEN and not answers:
            problem = PodProblem(reason=problem.reason, message=f"{problem.message}: {error}")
        log.warning("a run was lost: %s (%s)", problem.message, error, extra=self.entry.log_fields)
        return self._lost(problem)

    def _loss(self, pod: Object | None) -> PodProblem:
        known = self.lease.pod
        return loss_of(
            pod,
            name=known.name,
            node_loss=self.nodes.loss_reason(known.node),
            drained=self.nodes.is_cordoned(known.node),
        )

    def _lost(self, problem: PodProblem) -> Outcome:
        return self._partial(Phase.FAILED, problem.reason, problem.message)

    def _partial(self, phase: Phase, reason: Reason, message: str) -> Outcome:
        return Outcome(
            phase=phase,
            reason=reason,
            message=message,
            error=ExecutionError(type=reason.value, message=message) if phase is not Phase.CANCELLED else None,
            output=self.collector.output() if self.collector.seq else None,
            started_at=self._started_at(),
            durations=self._durations(),
        )

    def _ended(self) -> Outcome:
        collector = self.collector
        assert collector.end is not None  # noqa: S101 - _follow returns after the end alone
        error = collector.error()
        return Outcome(
            phase=collector.end.phase,
            reason=collector.reason(),
            message=f"{error.type}: {error.message}" if error else "",
            error=error,
            output=collector.output(),
            started_at=self._started_at(),
            durations=self._durations(),
        )

    def _started_at(self) -> datetime | None:
        """When the code began; a sandbox's clock is believed between the binding and now."""
        said = self.collector.started_at
        if said is None:
            return None
        bound_at = datetime.fromisoformat(self.entry.status["boundAt"])
        try:
            return min(max(said, bound_at), now())
        except TypeError:  # no time zone
            return bound_at

    def _durations(self) -> Durations:
        collector, lease = self.collector, self.lease
        run = collector.run_milliseconds()
        dispatch = collect = None
        if collector.started is not None and lease.bound is not None and not collector.replayed:
            dispatch = (collector.started - lease.bound) * 1000
            if run is not None and collector.ended is not None:
                collect = max(0.0, (collector.ended - collector.started) * 1000 - run)
        values = {"bind": lease.bind_milliseconds, "dispatch": dispatch, "run": run, "collect": collect}
        return Durations(**{name: round(value, 3) for name, value in values.items() if value is not None})
