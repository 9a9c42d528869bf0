"""One run: dispatch of the job to the bound pod, its events up to the end, and the outcome if there is no end."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from math import inf
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import CodeExecutionSpec, Durations, ExecutionError, Phase, Usage
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import (
    ApprovalEvent,
    Event,
    InterpreterLost,
    SandboxError,
    SandboxUsed,
    SkillEvent,
    ToolResultEvent,
)
from mcp_exec_operator.executions.binding import Binding, build_job, longest_run_seconds, run_deadline_seconds
from mcp_exec_operator.executions.files import FilesIssuer
from mcp_exec_operator.executions.outcome import (
    EndedBeforeRun,
    ExecutionOutcome,
    build_cancellation,
    build_failure,
)
from mcp_exec_operator.executions.output import OutputCollector, build_workspace
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.executions.spec_cache import SpecCache
from mcp_exec_operator.executions.tools import GrantIssuer, ToolCallTracker
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.pods.manifest import busy_patch
from mcp_exec_operator.pods.nodes import NodeCache
from mcp_exec_operator.pods.status import PodProblem, build_usage, is_over, is_terminating, loss_of
from mcp_exec_operator.skills.authoring import SavedSkills
from mcp_exec_operator.skills.resolver import SkillResolver, SkillsRefused

log = logging.getLogger(__name__)

_LABEL_AFTER_SECONDS: Final = 0.1
"""How long a run lasts before its pod is labelled: most runs end earlier and save one API write."""
_CANCEL_SECONDS: Final = 10.0
"""How long a cancelled run may take to send its end."""
_WITHDRAWAL_SECONDS: Final = 2.0
"""The same if its namespace is being deleted: after five seconds Kubernetes deletes the NetworkPolicies."""
_LAST_EVENTS_SECONDS: Final = 1.0
"""How long the events of a lost pod are still read: its end may be in flight."""
_POLL_SECONDS: Final = 1.0
"""Interval of requests to a sandbox on a lost node. It is given up when two in a row get no response."""
_CLEAN_REASONS: Final = frozenset({Reason.NONE, Reason.USER_ERROR, Reason.EXIT_CODE})
"""Ends after which a sandbox can be used again. After any other, such as a limit or a time-out, its pod is deleted."""
_RECONNECT_DELAYS: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 2.0)


class _Lost(Exception):
    """The sandbox does not respond."""


@dataclass(kw_only=True, eq=False)
class ExecutionRun:
    """One run, from its dispatch to its outcome.

    It ends with the stream's last event, when the stream is lost, or at a deadline. Another task, the observer,
    shortens the deadline when a cancellation is requested or the pod or its node is lost.
    """

    record: ExecutionRecord
    binding: Binding
    api: OperatorApi
    supervisors: SupervisorClient
    tasks: TaskRegistry
    nodes: NodeCache
    specs: SpecCache
    tools: GrantIssuer
    files: FilesIssuer
    tracker: ToolCallTracker | None
    """Tracks its tool calls; None if it may call none."""
    skills: SkillResolver
    saved: SavedSkills
    """Skills that its code saves."""
    output: OutputCollector = field(init=False)
    _accepted: bool = False
    """Whether the sandbox has accepted the job, so that it must not be dispatched again."""
    _deadline: asyncio.Timeout | None = None
    _base: float = 0.0
    """When the run ends at the latest if no call waits for an approval, by the loop's clock."""
    _extension_seconds: float = 0.0
    """Time in which calls wait for approvals, as the broker confirmed it."""
    _cut: float = inf
    """When a run ends at the latest that was cancelled or lost."""
    _over: bool = False
    _cancelling: bool = False
    """Whether the supervisor is being asked to cancel."""
    _polling: bool = False
    """Whether the supervisor is being polled, or did not respond, because its node is lost."""
    _silent: bool = False
    """Whether the supervisor did not respond to polls."""

    def __post_init__(self) -> None:
        self.output = OutputCollector(limit=self.binding.spec.limits.output_bytes)

    async def execute(self) -> ExecutionOutcome:
        """Dispatch the job, follow its events and return the outcome. Raises EndedBeforeRun if it need not begin."""
        if not self.binding.pod.address and (problem := await self._find_pod()) is not None:
            return self._build_withdrawal() if self.record.withdrawn else self._build_loss(problem)
        pod = self.binding.pod
        connection = self.supervisors.get_connection(namespace=self.record.namespace, pod=pod.name, address=pod.address)
        await self._check_dispatch(connection)
        pod.wakeup = self.record.wakeup
        observer = self.tasks.spawn(self._observe(connection), name=f"observe {pod.name}")
        try:
            async with asyncio.timeout(run_deadline_seconds(self.binding.spec)) as self._deadline:
                self._base = self._deadline.when() or 0.0
                if self.tracker is not None:
                    self.tracker.follow(partial(self._extend, connection))
                try:
                    await self._follow(connection)
                finally:
                    # before the deadline ends, which cannot be changed afterwards
                    self._over = True
                    observer.cancel()
        except (_Lost, TimeoutError) as error:
            return await self._outcome_without_end(error)
        assert self.output.end is not None  # noqa: S101 - _follow returns after the end alone
        if self.record.withdrawn and self.output.end.phase is Phase.CANCELLED:
            return self._build_withdrawal()
        failure, reason = self.output.build_error(), self.output.find_reason()
        message = failure.summary if failure else self.output.workspace_problem
        outcome = self._build_outcome(self.output.end.phase, reason, message, failure)
        is_clean = reason in _CLEAN_REASONS and not self.record.is_unwanted
        return replace(outcome, left_clean=is_clean)

    async def _find_pod(self) -> PodProblem | None:
        """Read a pod of which only the name is known. Return the problem if the pod is lost. Raises ApiError."""
        name, pods = self.binding.pod.name, self.binding.pool.pods
        body = await self._read_pod()
        if body is not None:
            pods.observe(body, now=monotonic())
            self.binding.pod = pods.adopt(name, uid=self.record.pod_uid, now=monotonic())
        return None if self.binding.pod.address else self._find_loss(body)

    async def _read_pod(self) -> Object | None:
        """Return the object of the execution's pod, or None if it is gone. Another pod of that name is not its own."""
        pod = await self.api.get_pod(self.record.namespace, self.binding.pod.name)
        uid = self.record.pod_uid or self.binding.pod.uid
        # an operator of an earlier release recorded no uid; the pod still has to prove that it holds its token's digest
        return pod if pod is not None and (not uid or pod["metadata"]["uid"] == uid) else None

    async def _check_dispatch(self, connection: SupervisorConnection) -> None:
        """Check what another operator may have left undone, or what has changed since the binding.

        A sandbox that is not idle has accepted what was bound: its events are followed and nothing is dispatched.
        Raises EndedBeforeRun if the code has not begun and must not.
        """
        changed = self.record.status.get("specDigest") != self.record.digest
        lacks_tools = bool(self.binding.spec.tools) and self.binding.tools is None
        lacks_files = self.binding.spec.workspace is not None and self.binding.files is None
        if not changed and not lacks_tools and not lacks_files and not self.record.is_unwanted:
            return
        try:
            state, last = await connection.get_execution()
            idle = state == "idle" and last != self.record.uid
        except SandboxError:
            idle = False
        if not idle:
            self._accepted = self.output.replayed = True
            return
        if self.record.is_unwanted:
            raise EndedBeforeRun(build_cancellation(self.record.withdrawn))
        if changed:
            message = "the spec was changed between its binding and its run"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))
        if lacks_tools:
            seconds = run_deadline_seconds(self.binding.spec)
            self.binding.tools = await self.tools.grant(self.record, self.binding, run_seconds=seconds)
        if lacks_files:
            self.binding.files = self.files.grant(self.record, self.binding)

    async def _follow(self, connection: SupervisorConnection) -> None:
        """Read events up to the last, over as many connections as needed."""
        failures = 0
        while True:
            before = self.output.seq
            try:
                async with aclosing(await self._open_stream(connection)) as events:
                    async for event in events:
                        if not self._accepted:
                            self._accepted = True
                            self.binding.release_job()
                            self.specs.drop_if_large(self.record)
                        if self.output.add(event):
                            return
                        self._react(event)
            except (InterpreterLost, SandboxUsed) as refusal:
                self._check_refusal(refusal)
                self._accepted = self.output.replayed = True
            except SandboxError as error:
                failures = failures + 1 if self.output.seq == before else 1
                if self.binding.pod.lost or failures > len(_RECONNECT_DELAYS):
                    raise _Lost(str(error)) from error
                log.info("the stream of a run broke: %s", error, extra=self.record.log_fields)
                await asyncio.sleep(_RECONNECT_DELAYS[failures - 1])

    def _check_refusal(self, refusal: InterpreterLost | SandboxUsed) -> None:
        """Return if the sandbox refuses the job because it has accepted it already.

        Else nothing ran, or it is unknown what ran. Raises EndedBeforeRun in a session, which is lost, and _Lost.
        """
        if isinstance(refusal, SandboxUsed) and refusal.id == self.record.uid:
            return
        if self.record.session is None or self._accepted:
            raise _Lost(str(refusal)) from refusal
        message = f"the session {self.record.session.name} was lost: its interpreter ended after the last execution"
        raise EndedBeforeRun(build_failure(Reason.SESSION_LOST, message)) from refusal

    def _react(self, event: Event) -> None:
        """Save a skill, or let the tracker ask the broker if an event says that a call began or ended to wait.

        Code may forge events.
        """
        if isinstance(event, SkillEvent):
            self.saved.add(event)
        elif isinstance(event, ApprovalEvent) and self.tracker is not None:
            self.tracker.watch_approvals()
        elif isinstance(event, ToolResultEvent) and self.tracker is not None:
            self.tracker.refresh_approvals()

    async def _extend(self, connection: SupervisorConnection, seconds: float) -> bool:
        """Let the run take so much longer for its waits, in all. Return whether the sandbox has it, too."""
        self._extension_seconds = seconds
        self._set_deadline()
        try:
            await connection.extend(self.record.uid, seconds)
        except SandboxError as error:
            log.info("the clock of a run was not set: %s", error, extra=self.record.log_fields)
            return False
        return True

    async def _open_stream(self, connection: SupervisorConnection) -> AsyncGenerator[Event, None]:
        pending, seconds = self.binding.pending_run, longest_run_seconds(self.binding.spec)
        if self._accepted or self.output.seq:
            return connection.follow_events(self.record.uid, from_seq=self.output.seq + 1, timeout_seconds=seconds)
        if pending is not None:
            self.binding.pending_run = None
            return pending.run()
        # a sandbox accepts no execution twice: to send the same one again can't run anything twice
        self.binding.release_job()
        hold = await self.specs.acquire(self.record)
        self.binding.release_job = lambda: self.specs.release(hold)
        if self.record.changed:
            raise _Lost("the spec was changed meanwhile, so that the job can't be sent again")
        spec = CodeExecutionSpec.model_validate(hold.spec)
        try:
            caller = self.record.skills_caller
            skills = await self.skills.resolve(spec, namespace=self.record.namespace, caller=caller)
        except SkillsRefused as error:
            raise _Lost(f"the job can't be sent again: {error}") from error
        binding = self.binding
        if binding.files is None and spec.workspace is None:
            binding.files = self.files.grant(self.record, binding)
        job = build_job(
            self.record.uid,
            spec,
            binding.tools,
            files=binding.files,
            owner=binding.owner,
            skills=skills,
            libraries=binding.find_missing_libraries(),
        )
        return connection.run(job, timeout_seconds=seconds)

    async def _observe(self, connection: SupervisorConnection) -> None:
        """React to a cancellation and to the loss of the pod or its node, until cancelled. Label the pod meanwhile."""
        pod, wakeup = self.binding.pod, self.record.wakeup
        # the label of its owner says the same
        label_at = None if pod.labelled_busy or pod.owner else monotonic() + _LABEL_AFTER_SECONDS
        while True:
            wakeup.clear()
            if pod.lost:
                self._shorten_deadline(_LAST_EVENTS_SECONDS)
            if self.record.is_unwanted and not self._cancelling:
                self._cancelling = True
                self._shorten_deadline(_WITHDRAWAL_SECONDS if self.record.withdrawn else _CANCEL_SECONDS)
                self.tasks.spawn(self._cancel(connection), name=f"cancel {self.record.name}")
            # a sandbox may go on without its node, as it does while a kubelet restarts
            if not self._polling and self.nodes.loss_reason(pod.node):
                self._polling = True
                self.tasks.spawn(self._poll_supervisor(connection), name=f"poll {pod.name}")
            with suppress(TimeoutError):
                async with asyncio.timeout(None if label_at is None else max(0.0, label_at - monotonic())):
                    await wakeup.wait()
            if label_at is not None and monotonic() >= label_at:
                label_at = None
                self.tasks.spawn(self._label_pod(), name=f"label {pod.name}")

    def _shorten_deadline(self, seconds: float) -> None:
        """Let the run end at most so many seconds from now."""
        self._cut = min(self._cut, asyncio.get_running_loop().time() + seconds)
        self._set_deadline()

    def _set_deadline(self) -> None:
        if self._deadline is not None and not self._over and not self._deadline.expired():
            self._deadline.reschedule(min(self._base + self._extension_seconds, self._cut))

    async def _poll_supervisor(self, connection: SupervisorConnection) -> None:
        """End the run if the supervisor does not respond, as long as its node is lost."""
        failures = 0
        while not self._over and self.nodes.loss_reason(self.binding.pod.node):
            try:
                await connection.get_execution()
                failures = 0
            except SandboxError:
                failures += 1
            if failures > 1:
                self._silent = True
                self._shorten_deadline(0.0)
                return
            await asyncio.sleep(_POLL_SECONDS)
        self._polling = False

    async def _cancel(self, connection: SupervisorConnection) -> None:
        """Ask the supervisor to end the run; again if the first request came before the run began."""
        for delay in _RECONNECT_DELAYS:
            try:
                await connection.cancel(self.record.uid)
            except SandboxError as error:
                log.info("a run was not cancelled: %s", error, extra=self.record.log_fields)
            await asyncio.sleep(delay)
            if self._over:
                return

    async def _label_pod(self) -> None:
        patch = busy_patch(execution_name=self.record.name, pod_uid=self.record.pod_uid)
        try:
            await self.api.patch_pod(self.record.namespace, self.binding.pod.name, patch)
        except ApiError as error:
            # the execution's status has the same fact, and that is what counts; 409: another pod has the name
            if error.code not in (404, 409):
                log.warning("a pod was not labelled: %s", error, extra=self.record.log_fields)

    async def _outcome_without_end(self, error: Exception) -> ExecutionOutcome:
        """Return why there is no end: the state of the pod, a cancellation, or the time."""
        try:
            pod = await self._read_pod()
        except ApiError:
            pod = self.binding.pod.newest
        if self.record.withdrawn:
            return self._build_withdrawal()
        responds = isinstance(error, TimeoutError) and pod is not None
        responds = responds and not self.binding.pod.lost and not self._silent
        if self.record.cancel_requested and responds:
            message = f"cancelled; the run did not stop within {_CANCEL_SECONDS:.0f} s"
            return self._build_outcome(Phase.CANCELLED, Reason.CANCELLED, message, None)
        if responds and self.output.seq:
            message = f"the run did not end within {self.binding.spec.timeout_seconds} s"
            failure = ExecutionError(type=Reason.TIMEOUT.value, message=message)
            return self._build_outcome(Phase.TIMED_OUT, Reason.TIMEOUT, message, failure)
        problem = self._find_loss(pod if pod is not None else self._last_seen())
        if problem.reason is Reason.STREAM_BROKEN and not responds:
            problem = PodProblem(reason=problem.reason, message=f"{problem.message}: {error}")
        # the message may quote the log of the container, to which the code can write in gVisor
        log.warning("a run was lost: %s (%s)", problem.reason, error, extra=self.record.log_fields)
        return self._build_loss(problem)

    def _last_seen(self) -> Object | None:
        """Return the last object of a pod that is gone, if it shows how the pod ended."""
        newest = self.binding.pod.newest
        return newest if newest is not None and (is_over(newest) or is_terminating(newest)) else None

    def _find_loss(self, body: Object | None) -> PodProblem:
        pod = self.binding.pod
        return loss_of(
            body, name=pod.name, node_loss=self.nodes.loss_reason(pod.node), drained=self.nodes.is_cordoned(pod.node)
        )

    def _build_withdrawal(self) -> ExecutionOutcome:
        return self._build_outcome(Phase.CANCELLED, Reason.CANCELLED, f"cancelled: {self.record.withdrawn}", None)

    def _build_loss(self, problem: PodProblem) -> ExecutionOutcome:
        error = ExecutionError(type=problem.reason.value, message=problem.message)
        return self._build_outcome(Phase.FAILED, problem.reason, problem.message, error)

    def _build_outcome(
        self, phase: Phase, reason: Reason, message: str, error: ExecutionError | None
    ) -> ExecutionOutcome:
        """Return an outcome with the output so far, when the code began, and the known durations."""
        output, binding = self.output, self.binding
        run, collect = output.measure_run()
        dispatch = None
        if output.started is not None and binding.bound is not None and not output.replayed:
            dispatch = (output.started - binding.bound) * 1000
        else:
            collect = None
        values = {"bind": binding.bind_milliseconds, "dispatch": dispatch, "run": run, "collect": collect}
        return ExecutionOutcome(
            phase=phase,
            reason=reason,
            message=message,
            error=error,
            output=output.build_output() if output.seq else None,
            started_at=self._limit_start(output.started_at),
            usage=self._build_usage(),
            artifacts=output.artifacts.build(),
            notes=output.build_notes(),
            workspace=build_workspace(output.end.workspace if output.end and binding.spec.workspace else None),
            durations=Durations(**{name: round(value, 3) for name, value in values.items() if value is not None}),
        )

    def _build_usage(self) -> Usage:
        pod, bound = self.binding.pod.newest, self.binding.bound
        if bound is not None:
            seconds = monotonic() - bound
        else:  # another operator bound it
            seconds = (now() - datetime.fromisoformat(self.record.status["boundAt"])).total_seconds()
        return build_usage(self.output.end, pod=pod, sandbox_seconds=seconds, code_bytes=self.record.code_bytes)

    def _limit_start(self, started_at: datetime | None) -> datetime | None:
        """Return when the code began. The sandbox's clock counts between the binding and now."""
        if started_at is None:
            return None
        bound_at = datetime.fromisoformat(self.record.status["boundAt"])
        try:
            return min(max(started_at, bound_at), now())
        except TypeError:  # no time zone
            return bound_at
