"""One run: dispatch of the job and its events, under supervision, and the outcome, also if the stream has no end."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import ExecutionError, Phase
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import EndEvent, Event, InterpreterLost, SandboxError, SandboxUsed
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.attempt import Attempt, Feature
from mcp_exec_operator.core.executions.outcome import (
    EndedBeforeRun,
    ExecutionOutcome,
    build_cancellation,
    build_failure,
)
from mcp_exec_operator.core.executions.output import OutputCollector, RunFacts
from mcp_exec_operator.core.executions.record import BoundPod
from mcp_exec_operator.core.executions.supervision import CANCEL_SECONDS, RunSupervision
from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pods.status import PodProblem

log = logging.getLogger(__name__)

_RECONNECT_DELAYS: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 2.0)


class StreamLost(Exception):
    """The sandbox does not respond."""


@dataclass(kw_only=True, eq=False)
class RunStream:
    """Sends the job of an attempt once, follows the events of its run, and collects its output."""

    attempt: Attempt
    features: Sequence[Feature]
    connection: SupervisorConnection
    output: OutputCollector
    _accepted: bool = False
    """Whether the sandbox has accepted the job, so that it must not be dispatched again."""
    _is_idle: bool = False
    """Whether nothing can have run, because the sandbox said so just now."""

    async def check_dispatch(self) -> None:
        """Check what another operator may have left undone, or what has changed since the binding.

        A sandbox that is not idle has accepted what was bound: its events are followed and nothing is dispatched.
        Raises EndedBeforeRun if the code has not begun and must not.
        """
        attempt, record = self.attempt, self.attempt.record
        changed = record.status.get("specDigest") != record.digest
        lacks_grants = not attempt.pending_run and bool(attempt.spec.tools or attempt.spec.workspace)
        if not changed and not lacks_grants and not record.is_unwanted:
            return
        try:
            state, last = await self.connection.get_execution()
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

    async def follow(self) -> EndEvent:
        """Return the last event, after as many connections as needed. Raises StreamLost and EndedBeforeRun."""
        failures = 0
        while True:
            before = self.output.seq
            try:
                async with aclosing(await self._open()) as events:
                    async for event in events:
                        if not self._accepted:
                            self._accepted = True
                            self.attempt.held.discard()
                        self.output.add(event)
                        if self.output.end is not None:
                            return self.output.end
                        for feature in self.features:
                            feature.on_event(self.attempt, event)
            except (InterpreterLost, SandboxUsed) as refusal:
                self._check_refusal(refusal)
                self._accepted = self.output.replayed = True
            except SandboxError as error:
                failures = failures + 1 if self.output.seq == before else 1
                if self.attempt.pod.lost or failures > len(_RECONNECT_DELAYS):
                    raise StreamLost(str(error)) from error
                log.info("the stream of a run broke: %s", error, extra=self.attempt.record.log_fields)
                await asyncio.sleep(_RECONNECT_DELAYS[failures - 1])

    def _check_refusal(self, refusal: InterpreterLost | SandboxUsed) -> None:
        """Return if the sandbox refuses the job because it has accepted it already.

        Else nothing ran, or it is unknown what ran. Raises EndedBeforeRun in a session, which is lost, and StreamLost.
        """
        record = self.attempt.record
        if isinstance(refusal, SandboxUsed) and refusal.id == record.uid:
            return
        if record.session is None or self._accepted:
            raise StreamLost(str(refusal)) from refusal
        message = f"the session {record.session.name} was lost: its interpreter ended after the last execution"
        raise EndedBeforeRun(build_failure(Reason.SESSION_LOST, message)) from refusal

    async def _open(self) -> AsyncGenerator[Event, None]:
        attempt, record = self.attempt, self.attempt.record
        seconds = attempt.longest_seconds
        if self._accepted or self.output.seq:
            return self.connection.follow_events(record.uid, from_seq=self.output.seq + 1, timeout_seconds=seconds)
        if (pending := attempt.pending_run) is not None:
            attempt.pending_run = None
            return pending.run()
        # a sandbox accepts no execution twice: to send the same one again can't run anything twice
        try:
            spec = await attempt.held.load()
            if record.changed:
                raise StreamLost("the spec was changed meanwhile, so that the job can't be sent again")
            attempt.needs_job = True
            for feature in self.features:
                await feature.prepare(attempt)
        except EndedBeforeRun as ended:
            if self._is_idle:
                raise
            raise StreamLost(f"the job can't be sent again: {ended}") from ended
        return self.connection.run(attempt.build_job(spec), timeout_seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class ExecutionRun:
    """One run in a pod, from its dispatch to its outcome.

    It ends with the stream's last event, when the stream is lost, or at its deadline.
    """

    attempt: Attempt
    features: Sequence[Feature]
    api: OperatorApi
    supervisors: SupervisorClient
    tasks: TaskRegistry
    nodes: NodeCache

    async def execute(self) -> ExecutionOutcome:
        """Dispatch the job, follow its events and return the outcome. Raises EndedBeforeRun if it need not begin."""
        attempt, record = self.attempt, self.attempt.record
        output = OutputCollector(limit=attempt.spec.limits.output_bytes)
        if not attempt.pod.address and (problem := await self._find_pod()) is not None:
            return self._build_cancellation(output) if record.cancelled else self._build_loss(output, problem)
        pod = attempt.pod
        connection = self.supervisors.get_connection(
            namespace=record.namespace, pod=pod.name, address=pod.address, digest=pod.token_sha256
        )
        stream = RunStream(attempt=attempt, features=self.features, connection=connection, output=output)
        await stream.check_dispatch()
        supervision = RunSupervision(
            record=record,
            pod=pod,
            connection=connection,
            deadline=attempt.deadline,
            api=self.api,
            tasks=self.tasks,
            nodes=self.nodes,
        )
        try:
            async with supervision.running():
                end = await stream.follow()
        except (StreamLost, TimeoutError) as error:
            return await self._explain_loss(output, error, supervision)
        attempt.ended = True
        if record.cancelled and end.phase is Phase.CANCELLED:
            return self._build_cancellation(output)
        failure, reason = output.build_error(), output.find_reason()
        message = failure.summary if failure else output.workspace_problem
        outcome = self._build_outcome(output, end.phase, reason, message, failure)
        return replace(outcome, left_clean=reason.is_clean and not record.is_unwanted)

    async def _find_pod(self) -> PodProblem | None:
        """Read a pod whose name only is known. Return the problem if the pod is lost. Raises ApiError."""
        attempt, pods = self.attempt, self.attempt.pool.pods
        body = await self._read_pod()
        if body is not None:
            pods.observe(body, now=monotonic())
            attempt.pod = pods.adopt(attempt.pod.name, uid=attempt.record.pod_uid, now=monotonic())
            attempt.record.bound_pod = BoundPod(attempt.pod, attempt.sandbox_owner)
        return (
            None if attempt.pod.address else self.nodes.explain_loss(body, name=attempt.pod.name, node=attempt.pod.node)
        )

    async def _read_pod(self) -> Object | None:
        """Return the object of the execution's pod, or None if it is gone. Another pod of that name is not its own."""
        record, known = self.attempt.record, self.attempt.pod
        pod = await self.api.get_pod(record.namespace, known.name)
        return pod if pod is not None and pod["metadata"]["uid"] == (record.pod_uid or known.uid) else None

    async def _explain_loss(
        self, output: OutputCollector, error: Exception, supervision: RunSupervision
    ) -> ExecutionOutcome:
        """Return why the run has no end: a cancellation, the time, or the state of the pod."""
        record, known = self.attempt.record, self.attempt.pod
        try:
            pod = await self._read_pod()
        except ApiError:
            pod = known.newest
        if record.cancelled:
            return self._build_cancellation(output)
        responds = isinstance(error, TimeoutError) and pod is not None
        responds = responds and not known.lost and not supervision.silent
        if record.cancel_requested and responds:
            message = f"cancelled; the run did not stop within {CANCEL_SECONDS:.0f} s"
            return self._build_outcome(output, Phase.CANCELLED, Reason.CANCELLED, message)
        if responds and output.seq:
            message = f"the run did not end within {self.attempt.spec.timeout_seconds} s"
            failure = ExecutionError(type=Reason.TIMEOUT.value, message=message)
            return self._build_outcome(output, Phase.TIMED_OUT, Reason.TIMEOUT, message, failure)
        if pod is None and known.has_ended:
            pod = known.newest  # the last object of a pod that is gone shows how it ended
        problem = self.nodes.explain_loss(pod, name=known.name, node=known.node)
        if problem.reason is Reason.STREAM_BROKEN and not responds:
            problem = PodProblem(reason=problem.reason, message=f"{problem.message}: {error}")
        # the message may quote the log of the container, and code can write that in gVisor
        log.warning("a run was lost: %s (%s)", problem.reason, error, extra=record.log_fields)
        return self._build_loss(output, problem)

    def _build_cancellation(self, output: OutputCollector) -> ExecutionOutcome:
        message = f"cancelled: {self.attempt.record.cancelled}"
        return self._build_outcome(output, Phase.CANCELLED, Reason.CANCELLED, message)

    def _build_loss(self, output: OutputCollector, problem: PodProblem) -> ExecutionOutcome:
        error = ExecutionError(type=problem.reason.value, message=problem.message)
        return self._build_outcome(output, Phase.FAILED, problem.reason, problem.message, error)

    def _build_outcome(
        self,
        output: OutputCollector,
        phase: Phase,
        reason: Reason,
        message: str,
        error: ExecutionError | None = None,
    ) -> ExecutionOutcome:
        attempt, record = self.attempt, self.attempt.record
        facts = RunFacts(
            code_bytes=record.code_bytes,
            has_workspace=attempt.spec.workspace is not None,
            pod=attempt.pod.newest,
            bound_at=datetime.fromisoformat(record.status["boundAt"]),
            bound=attempt.bound,
            bind_milliseconds=attempt.bind_milliseconds,
        )
        return output.build_outcome(phase, reason, message, error, facts=facts)
