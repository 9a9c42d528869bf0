"""One run: dispatch of the job to the bound pod, its events up to the end, and the outcome if there is no end."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import ExecutionError, Phase
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import (
    Event,
    InterpreterLost,
    SandboxError,
    SandboxUsed,
)
from mcp_exec_operator.executions.features import Attempt, Feature, longest_run_seconds
from mcp_exec_operator.executions.outcome import EndedBeforeRun, ExecutionOutcome, build_cancellation, build_failure
from mcp_exec_operator.executions.output import OutputCollector, RunTimes
from mcp_exec_operator.executions.record import BoundPod, ExecutionRecord
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.pods.manifest import busy_patch
from mcp_exec_operator.pods.nodes import NodeCache
from mcp_exec_operator.pods.status import PodProblem, is_over, is_terminating, loss_of

log = logging.getLogger(__name__)

_LABEL_AFTER_SECONDS: Final = 0.1
"""How long a run lasts before its pod is labelled: most runs end earlier and save one API write."""
_CANCEL_SECONDS: Final = 10.0
"""How long a cancelled run may take to send its end."""
_CANCEL_NAMESPACE_SECONDS: Final = 2.0
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
    """One run in a pod, from its dispatch to its outcome.

    It ends with the stream's last event, when the stream is lost, or at its deadline. Another task, the observer,
    shortens the deadline when a cancellation is requested or the pod or its node is lost.
    """

    attempt: Attempt
    features: Sequence[Feature]
    api: OperatorApi
    supervisors: SupervisorClient
    tasks: TaskRegistry
    nodes: NodeCache
    record: ExecutionRecord = field(init=False)
    output: OutputCollector = field(init=False)
    _accepted: bool = False
    """Whether the sandbox has accepted the job, so that it must not be dispatched again."""
    _is_idle: bool = False
    """Whether nothing can have run, because the sandbox said so just now."""
    _cancelling: bool = False
    """Whether the supervisor is being asked to cancel."""
    _polling: bool = False
    """Whether the supervisor is being polled, or did not respond, because its node is lost."""
    _silent: bool = False
    """Whether the supervisor did not respond to polls."""

    def __post_init__(self) -> None:
        self.record = self.attempt.record
        self.output = OutputCollector(limit=self.attempt.spec.limits.output_bytes)

    async def execute(self) -> ExecutionOutcome:
        """Dispatch the job, follow its events and return the outcome. Raises EndedBeforeRun if it need not begin."""
        if not self.attempt.pod.address and (problem := await self._find_pod()) is not None:
            return self._build_cancellation() if self.record.cancelled else self._build_loss(problem)
        pod = self.attempt.pod
        connection = self.supervisors.get_connection(namespace=self.record.namespace, pod=pod.name, address=pod.address)
        await self._check_dispatch(connection)
        pod.wakeup = self.record.wakeup
        observer = self.tasks.spawn(self._observe(connection), name=f"observe {pod.name}")
        try:
            async with self.attempt.deadline.running(connection):
                try:
                    await self._follow(connection)
                finally:
                    observer.cancel()
        except (_Lost, TimeoutError) as error:
            return await self._outcome_without_end(error)
        assert self.output.end is not None  # noqa: S101 - _follow returns only after the end
        self.attempt.ended = True
        if self.record.cancelled and self.output.end.phase is Phase.CANCELLED:
            return self._build_cancellation()
        failure, reason = self.output.build_error(), self.output.find_reason()
        message = failure.summary if failure else self.output.workspace_problem
        outcome = self._build_outcome(self.output.end.phase, reason, message, failure)
        is_clean = reason in _CLEAN_REASONS and not self.record.is_unwanted
        return replace(outcome, left_clean=is_clean)

    async def _find_pod(self) -> PodProblem | None:
        """Read a pod whose name only is known. Return the problem if the pod is lost. Raises ApiError."""
        name, pods = self.attempt.pod.name, self.attempt.pool.pods
        body = await self._read_pod()
        if body is not None:
            pods.observe(body, now=monotonic())
            self.attempt.pod = pods.adopt(name, uid=self.record.pod_uid, now=monotonic())
            self.record.bound = BoundPod(self.attempt.pod, self.attempt.owner)
        return None if self.attempt.pod.address else self._find_loss(body)

    async def _read_pod(self) -> Object | None:
        """Return the object of the execution's pod, or None if it is gone. Another pod of that name is not its own."""
        pod = await self.api.get_pod(self.record.namespace, self.attempt.pod.name)
        uid = self.record.pod_uid or self.attempt.pod.uid
        # an operator of an earlier release recorded no uid; the pod still has to prove that it holds its token's digest
        return pod if pod is not None and (not uid or pod["metadata"]["uid"] == uid) else None

    async def _check_dispatch(self, connection: SupervisorConnection) -> None:
        """Check what another operator may have left undone, or what has changed since the binding.

        A sandbox that is not idle has accepted what was bound: its events are followed and nothing is dispatched.
        Raises EndedBeforeRun if the code has not begun and must not.
        """
        attempt, record = self.attempt, self.record
        changed = record.status.get("specDigest") != record.digest
        lacks_grants = not attempt.pending_run and bool(attempt.spec.tools or attempt.spec.workspace)
        if not changed and not lacks_grants and not record.is_unwanted:
            return
        try:
            state, last = await connection.get_execution()
            self._is_idle = state == "idle" and last != record.uid
        except SandboxError:
            self._is_idle = False
        if not self._is_idle:
            self._accepted = self.output.replayed = True
            return
        if record.is_unwanted:
            raise EndedBeforeRun(build_cancellation(record.cancelled))
        if changed:
            message = "the spec was changed between its binding and its run"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))

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
                            self.attempt.held.discard()
                        if self.output.add(event):
                            return
                        for feature in self.features:
                            feature.on_event(self.attempt, event)
            except (InterpreterLost, SandboxUsed) as refusal:
                self._check_refusal(refusal)
                self._accepted = self.output.replayed = True
            except SandboxError as error:
                failures = failures + 1 if self.output.seq == before else 1
                if self.attempt.pod.lost or failures > len(_RECONNECT_DELAYS):
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

    async def _open_stream(self, connection: SupervisorConnection) -> AsyncGenerator[Event, None]:
        attempt, seconds = self.attempt, longest_run_seconds(self.attempt.spec)
        if self._accepted or self.output.seq:
            return connection.follow_events(self.record.uid, from_seq=self.output.seq + 1, timeout_seconds=seconds)
        if (pending := attempt.pending_run) is not None:
            attempt.pending_run = None
            return pending.run()
        # a sandbox accepts no execution twice: to send the same one again can't run anything twice
        try:
            spec = await attempt.held.load()
            if self.record.changed:
                raise _Lost("the spec was changed meanwhile, so that the job can't be sent again")
            attempt.needs_job = True
            for feature in self.features:
                await feature.prepare(attempt)
        except EndedBeforeRun as ended:
            if self._is_idle:
                raise
            raise _Lost(f"the job can't be sent again: {ended}") from ended
        return connection.run(attempt.build_job(spec), timeout_seconds=seconds)

    async def _observe(self, connection: SupervisorConnection) -> None:
        """React to a cancellation and to the loss of the pod or its node, until cancelled. Label the pod meanwhile."""
        pod, wakeup = self.attempt.pod, self.record.wakeup
        # the label of its owner says the same
        label_at = None if pod.labelled_busy or pod.owner else monotonic() + _LABEL_AFTER_SECONDS
        while True:
            wakeup.clear()
            if pod.lost:
                self.attempt.deadline.cut(_LAST_EVENTS_SECONDS)
            if self.record.is_unwanted and not self._cancelling:
                self._cancelling = True
                self.attempt.deadline.cut(_CANCEL_NAMESPACE_SECONDS if self.record.cancelled else _CANCEL_SECONDS)
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

    async def _poll_supervisor(self, connection: SupervisorConnection) -> None:
        """End the run if the supervisor does not respond, as long as its node is lost."""
        failures = 0
        while not self.attempt.deadline.over and self.nodes.loss_reason(self.attempt.pod.node):
            try:
                await connection.get_execution()
                failures = 0
            except SandboxError:
                failures += 1
            if failures > 1:
                self._silent = True
                self.attempt.deadline.cut(0.0)
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
            if self.attempt.deadline.over:
                return

    async def _label_pod(self) -> None:
        patch = busy_patch(execution_name=self.record.name, pod_uid=self.record.pod_uid)
        try:
            await self.api.patch_pod(self.record.namespace, self.attempt.pod.name, patch)
        except ApiError as error:
            # the execution's status has the same fact, and that is what counts; 409: another pod has the name
            if error.code not in (404, 409):
                log.warning("a pod was not labelled: %s", error, extra=self.record.log_fields)

    async def _outcome_without_end(self, error: Exception) -> ExecutionOutcome:
        """Return why there is no end: the state of the pod, a cancellation, or the time."""
        try:
            pod = await self._read_pod()
        except ApiError:
            pod = self.attempt.pod.newest
        if self.record.cancelled:
            return self._build_cancellation()
        responds = isinstance(error, TimeoutError) and pod is not None
        responds = responds and not self.attempt.pod.lost and not self._silent
        if self.record.cancel_requested and responds:
            message = f"cancelled; the run did not stop within {_CANCEL_SECONDS:.0f} s"
            return self._build_outcome(Phase.CANCELLED, Reason.CANCELLED, message, None)
        if responds and self.output.seq:
            message = f"the run did not end within {self.attempt.spec.timeout_seconds} s"
            failure = ExecutionError(type=Reason.TIMEOUT.value, message=message)
            return self._build_outcome(Phase.TIMED_OUT, Reason.TIMEOUT, message, failure)
        problem = self._find_loss(pod if pod is not None else self._last_seen())
        if problem.reason is Reason.STREAM_BROKEN and not responds:
            problem = PodProblem(reason=problem.reason, message=f"{problem.message}: {error}")
        # the message may quote the log of the container, and code can write that in gVisor
        log.warning("a run was lost: %s (%s)", problem.reason, error, extra=self.record.log_fields)
        return self._build_loss(problem)

    def _last_seen(self) -> Object | None:
        """Return the last object of a pod that is gone, if it shows how the pod ended."""
        newest = self.attempt.pod.newest
        return newest if newest is not None and (is_over(newest) or is_terminating(newest)) else None

    def _find_loss(self, body: Object | None) -> PodProblem:
        pod = self.attempt.pod
        return loss_of(
            body, name=pod.name, node_loss=self.nodes.loss_reason(pod.node), drained=self.nodes.is_cordoned(pod.node)
        )

    def _build_cancellation(self) -> ExecutionOutcome:
        return self._build_outcome(Phase.CANCELLED, Reason.CANCELLED, f"cancelled: {self.record.cancelled}", None)

    def _build_loss(self, problem: PodProblem) -> ExecutionOutcome:
        error = ExecutionError(type=problem.reason.value, message=problem.message)
        return self._build_outcome(Phase.FAILED, problem.reason, problem.message, error)

    def _build_outcome(
        self, phase: Phase, reason: Reason, message: str, error: ExecutionError | None
    ) -> ExecutionOutcome:
        attempt, record = self.attempt, self.record
        return self.output.build_outcome(
            phase,
            reason,
            message,
            error,
            times=RunTimes(
                bound_at=datetime.fromisoformat(record.status["boundAt"]),
                bound=attempt.bound,
                bind_milliseconds=attempt.bind_milliseconds,
            ),
            pod=attempt.pod.newest,
            code_bytes=record.code_bytes,
            has_workspace=attempt.spec.workspace is not None,
        )
