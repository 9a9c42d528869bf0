"""Tools of executions: grants, and the tool calls of a running execution with their approvals."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from time import time
from typing import Final

from mcp_exec_api.approvals import Approval, ApprovalState
from mcp_exec_api.code_execution import Durations, ToolCalls
from mcp_exec_api.code_findings import Note, NoteKind, add_note
from mcp_exec_api.constants import DEFAULT_LANGUAGE
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_common.broker.client import ApprovalWait, BrokerClient, BrokerError, ExecutionCalls
from mcp_exec_common.broker.grants import build_grant
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.protocol import ApprovalEvent, Event, JobTools, ToolResultEvent
from mcp_exec_operator.cluster.broker import BrokerDiscovery
from mcp_exec_operator.core.executions.deadline import RunDeadline
from mcp_exec_operator.core.executions.execution import Execution
from mcp_exec_operator.core.executions.outcome import (
    EndedBeforeRun,
    ExecutionGone,
    ExecutionOutcome,
    StatusTooLarge,
    Superseded,
    build_failure,
)
from mcp_exec_operator.core.executions.part import JobDraft, Part
from mcp_exec_operator.core.executions.status import read_waited_seconds
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.features.tools.unmatched import describe_unmatched
from mcp_exec_operator.features.tools.wrappers import WrapperDistributor
from mcp_exec_tools.text import shorten

log = logging.getLogger(__name__)

_MAX_PROCESSES: Final = 64
"""Processes of the broker that are known of one execution: one, and one more for each restart."""
_DENY_ALL: Final = PoolTools(allow=[], deny=["*.*"])
"""Rules of a pool that was deleted."""
_CLOSE_SECONDS: Final = 2.0
"""How long the broker may take to return the counts at the end."""
_POLL_SECONDS: Final = 2.0
"""Interval of requests to the broker while an approval is pending."""
_MIN_SECONDS: Final = 0.5
"""Shortest interval, however often the sandbox sends approval events."""
_MAX_APPROVALS: Final = 50
_MAX_ARGUMENTS: Final = 12 * 1024
"""Characters of the arguments of an approval, which the broker bounds already."""
_MAX_TOOLS: Final = 64
_MAX_APPROVAL_WRITES: Final = 8
"""Statuses and Events about approvals that are written at once, of the 64 connections to the API server."""


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


@dataclass(kw_only=True, eq=False)
class ToolCallTracker:
    """Tool calls of one execution while it runs. An event of the sandbox only triggers a request to the broker."""

    execution: Execution
    broker: BrokerClient
    writer: ExecutionStatusWriter
    tasks: TaskRegistry
    approval_writes: asyncio.Semaphore
    """Bounds the writes about approvals of all executions, so that those of bindings and ends never wait for them."""
    waits: ApprovalWaits
    """How long calls waited for approvals."""
    deadline: RunDeadline
    """The run's time limit, which waits extend."""
    _newest: ExecutionCalls = field(default_factory=ExecutionCalls)
    """The broker's last response."""
    _written: list[Object] = field(init=False)
    """The approvals in the status."""
    _is_pending: bool = False
    """Whether an approval is pending, as far as is known."""
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    _watching: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        # an earlier operator may have written them
        self._written = list(self.execution.seen.status.get("approvals") or [])

    def resume(self) -> None:
        """Go on with what an earlier operator began."""
        if self._written:
            self.watch_approvals()

    def watch_approvals(self) -> None:
        """Ask the broker for approvals in a task, until none is pending."""
        self.changed()
        if self._watching is None or self._watching.done():
            self._watching = self.tasks.spawn(self._watch(), name=f"approvals of {self.execution.facts.name}")

    def refresh_approvals(self) -> None:
        """Ask the broker soon if an approval is pending: the call may have ended."""
        if self._is_pending:
            self.changed()

    def changed(self) -> None:
        """Ask the broker soon."""
        self._wakeup.set()

    async def stop(self) -> None:
        """Stop the task. Nothing is written to the status afterwards."""
        if self._watching is not None:
            while not self._watching.done():
                self._watching.cancel()
                await asyncio.wait({self._watching}, timeout=1)

    async def cancel(self) -> None:
        """End the calls of a deleted execution at the broker."""
        with suppress(BrokerError):
            await self._close()

    async def finish(self, outcome: ExecutionOutcome) -> ExecutionOutcome:
        """End the calls at the broker, and return the outcome with their counts. Takes at most 2.5 s."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS + 0.5):
                final = await self._close()
        except (BrokerError, TimeoutError) as error:
            log.warning("the tool calls of an execution are unknown: %s", error, extra=self.execution.log_fields)
            calls = self._newest.tool_calls.model_copy(update={"complete": False})
            newest = self._newest
        else:
            calls, newest = final.tool_calls, final
            self.waits.observe(final)
        # at the end no approval is pending, whatever the broker returned last
        approvals = _merge_approvals(self._written, newest.approvals, has_all=True)
        return replace(
            outcome,
            tool_calls=_count_calls(calls, outcome),
            approvals=approvals,
            durations=separate_waits(outcome.durations, self.waits.seconds),
        )

    async def _close(self) -> ExecutionCalls:
        return await self.broker.close_calls(
            self.execution.facts.uid, grant_seconds=self.deadline.grant_seconds, timeout_seconds=_CLOSE_SECONDS
        )

    async def _watch(self) -> None:
        while True:
            self._wakeup.clear()
            unsettled = await self._update()
            if not unsettled and not self._wakeup.is_set():
                return
            await asyncio.sleep(_MIN_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS - _MIN_SECONDS):
                    await self._wakeup.wait()

    async def _update(self) -> bool:
        """Update the time limit, then the status. Return whether to ask again: one is pending, or a request failed."""
        try:
            self._newest = await self.broker.get_calls(self.execution.facts.uid)
        except BrokerError as error:
            log.info("pending approvals are unknown: %s", error, extra=self.execution.log_fields)
            return True
        self.waits.observe(self._newest)
        is_extended = await self.deadline.extend(self.waits.extension_seconds)
        approvals = _merge_approvals(self._written, self._newest.approvals, has_all=self._newest.tool_calls.complete)
        if approvals != self._written:
            known = {each["id"] for each in self._written}
            async with self.approval_writes:
                if not await self._write(approvals):
                    return True
                self._written = approvals
                for each in approvals:
                    if each["state"] == ApprovalState.PENDING and each["id"] not in known:
                        await self._report(each)
        self._is_pending = any(each["state"] == ApprovalState.PENDING for each in approvals)
        return self._is_pending or not is_extended

    async def _write(self, approvals: list[Object]) -> bool:
        try:
            await self.writer.write_approvals(self.execution, approvals, waited_seconds=self.waits.seconds)
        except (ApiError, StatusTooLarge, ExecutionGone, Superseded) as error:
            log.info("approvals were not written to the status: %s", error, extra=self.execution.log_fields)
            return False
        return True

    async def _report(self, approval: Object) -> None:
        message = (
            f"a call of {approval['tool']} waits for an approval until {approval['expiresAt']}, by the id "
            f"{approval['id']}"
        )
        await self.writer.record_event(self.execution, EventReason.APPROVAL_NEEDED, message)


@dataclass(kw_only=True, eq=False)
class ToolsPart(Part):
    """Tools of one execution: their grant, and the calls while it runs."""

    execution: Execution
    feature: "Tools"
    awaits_approvals: bool = True
    needs_broker: bool = True
    events: tuple[type[Event], ...] = (ApprovalEvent, ToolResultEvent)
    _tracker: ToolCallTracker | None = None
    """The calls of this attempt."""
    _tools: JobTools | None = None
    """The tools of the job, once they are granted."""
    _unmatched: str | None = None
    """What is said of patterns that matched no tool when they were granted; None if another operator did that."""

    async def admit(self) -> None:
        """Wait a bounded time until the broker has a replica. Reject the execution if no tool can be called."""
        self._tracker = self._tools = self._unmatched = None  # of an attempt that was not bound
        if self.feature.broker is None:
            message = "spec.tools: no tool can be called, since this installation has no broker"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))
        await self.feature.broker.wait_for_replica()

    async def join(self, job: JobDraft) -> None:
        """Add the tools to the job, and track the calls."""
        self._begin()
        if self._tools is None:
            self._tools = await self._grant()
        job.tools = self._tools

    def resume(self) -> None:
        """Go on with what an earlier operator began."""
        self._begin()
        if self._tracker is not None:
            self._tracker.resume()

    def on_event(self, event: Event) -> None:
        """Ask the broker if an event says that a call began or ended to wait for an approval."""
        if self._tracker is None:
            return
        if isinstance(event, ApprovalEvent):
            self._tracker.watch_approvals()
        else:
            self._tracker.refresh_approvals()

    async def finish(self, outcome: ExecutionOutcome) -> ExecutionOutcome:
        """End the calls at the broker, and add their counts and a note on patterns without a tool to the outcome."""
        if self._tracker is None:
            return outcome
        await self._tracker.stop()
        outcome = await self._tracker.finish(outcome)
        if not (text := self._describe_unmatched() if self._unmatched is None else self._unmatched):
            return outcome
        return replace(outcome, notes=add_note(outcome.notes, Note(kind=NoteKind.NO_TOOL_MATCHES, message=text)))

    async def stop(self) -> None:
        """Stop to track the calls, and end those of a deleted execution. A further attempt gets a new grant."""
        tracker, self._tracker, self._tools = self._tracker, None, None
        if tracker is None:
            return
        if self.execution.deleted:  # the counts have no reader any more, but no call may go on
            self.feature.tasks.spawn(tracker.cancel(), name=f"end the calls of {self.execution.facts.name}")
        await tracker.stop()

    def _begin(self) -> None:
        execution, feature = self.execution, self.feature
        if feature.broker is not None and self._tracker is None:
            self._tracker = ToolCallTracker(
                execution=execution,
                broker=feature.broker.client,
                writer=feature.writer,
                tasks=feature.tasks,
                approval_writes=feature.approval_writes,
                waits=ApprovalWaits(
                    limit_seconds=execution.spec.approval_timeout_seconds,
                    recorded_seconds=read_waited_seconds(execution.seen.status),
                ),
                deadline=execution.deadline,
            )

    async def _grant(self) -> JobTools:
        """Return the tools of the job. Waits at most 15 seconds for wrappers. Raises EndedBeforeRun."""
        execution, broker = self.execution, self.feature.broker
        facts, spec, binding = execution.facts, execution.spec, execution.binding
        replica = broker.choose_replica(facts.uid) if broker is not None else None
        if broker is None or replica is None or binding is None:
            service = f"{broker.namespace}/{broker.service}" if broker is not None else "none"
            message = f"the broker has no pod: the Service {service} does not exist or has no endpoints"
            raise EndedBeforeRun(build_failure(Reason.BROKER_UNAVAILABLE, message))
        key = facts.namespace, binding.pool.shape.language
        wrappers = await self.feature.distributor.ensure(key, binding.pod, spec.tools)
        self._unmatched = self._describe_unmatched()
        grant = build_grant(
            spec,
            uid=facts.uid,
            name=facts.name,
            namespace=facts.namespace,
            pool_tools=self._pool_tools,
            caller=facts.named_caller or None,
            pod_address=binding.pod.seen.address,
            replica=replica.uid,
            expires=ceil(time()) + execution.deadline.grant_seconds,
        )
        return JobTools(url=replica.url, token=broker.signer.sign(grant), allow=list(spec.tools), wrappers=wrappers)

    def _describe_unmatched(self) -> str:
        facts, binding = self.execution.facts, self.execution.binding
        language = binding.pool.shape.language if binding is not None else DEFAULT_LANGUAGE
        if (names := self.feature.distributor.list_names((facts.namespace, language))) is None:
            return ""
        return describe_unmatched(
            self.execution.spec.tools, names=names, pool=self._pool_tools, may_name_all=not facts.has_limited_tools
        )

    @property
    def _pool_tools(self) -> PoolTools:
        binding = self.execution.binding
        pool = binding.pool.shape.spec if binding is not None else None
        return pool.tools if pool is not None else _DENY_ALL


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Grants tools to executions that ask for them, and tracks their calls while they run."""

    broker: BrokerDiscovery | None
    """The broker; None if none is configured."""
    distributor: WrapperDistributor
    writer: ExecutionStatusWriter
    tasks: TaskRegistry
    events: tuple[type[Event], ...] = ()
    approval_writes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_APPROVAL_WRITES))
    """Bounds the writes about approvals of all executions."""

    def take_part(self, execution: Execution, *, pool: Pool, event: Event | None = None) -> Part | None:
        """Take part if the execution names tools."""
        spec = execution.source.spec or {}
        return ToolsPart(execution=execution, feature=self) if spec.get("tools") else None


def _merge_approvals(written: list[Object], approvals: list[Approval], *, has_all: bool) -> list[Object]:
    """Return the newest approvals as the status has them, oldest first.

    Of those that only the status has, because a replica of the broker restarted, none is pending if the broker's
    response `has_all`.
    """
    known = {each.id: each for each in approvals}
    merged = [_withdraw(each) if has_all else each for each in written if each.get("id") not in known]
    merged += [
        drop_empty_fields({**each.to_api(), "arguments": shorten(each.arguments, _MAX_ARGUMENTS) or "{}"})
        for each in known.values()
    ]
    return sorted(merged, key=lambda each: str(each.get("requestedAt")))[-_MAX_APPROVALS:]


def _withdraw(approval: Object) -> Object:
    is_pending = approval.get("state") == ApprovalState.PENDING
    return {**approval, "state": ApprovalState.WITHDRAWN.value} if is_pending else approval


def separate_waits(durations: Durations, waited_seconds: float) -> Durations:
    """Return the durations of a run with the time of its waits on their own."""
    waited = round(waited_seconds * 1000, 3)
    if not waited:
        return durations
    run = None if durations.run is None else round(max(0.0, durations.run - waited), 3)
    return durations.model_copy(update={"run": run, "approval": waited})


def _count_calls(calls: ToolCalls, outcome: ExecutionOutcome) -> Object:
    """Return the counts with `bytesKept`: bytes of results less the bytes that the status has of the run."""
    by_tool = {name: count for name, count in list(calls.by_tool.items())[:_MAX_TOOLS] if name}
    shown = sum(len(text.encode("utf-8", "replace")) for text in outcome.list_shown())
    kept = max(0, calls.bytes_in - shown)
    return calls.model_copy(update={"bytes_kept": kept, "by_tool": by_tool}).to_api()
