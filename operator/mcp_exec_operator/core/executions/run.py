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
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import PendingRun, SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import EndEvent, Event, InterpreterLost, SandboxError, SandboxUsed
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.binder import build_job
from mcp_exec_operator.core.executions.execution import Binding, Execution, ExecutionFeature
from mcp_exec_operator.core.executions.outcome import (
    EndedBeforeRun,
    ExecutionOutcome,
    build_cancellation,
    build_failure,
)
from mcp_exec_operator.core.executions.output import OutputCollector
from mcp_exec_operator.core.executions.supervision import CANCEL_SECONDS, RunSupervision
from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pods.status import PodProblem, build_usage

log = logging.getLogger(__name__)

_RECONNECT_DELAYS: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 2.0)


class StreamLost(Exception):
    """The sandbox does not respond."""


@dataclass(kw_only=True, eq=False)
class Run:
    """One run in a pod, from its dispatch to its outcome.

    It ends with the stream's last event, when the stream is lost, or at its deadline.
    """

    execution: Execution
    binding: Binding
    """The pod of the run."""
    output: OutputCollector
    pending: PendingRun | None
    """The job on its way to the pod; None if it is dispatched, or if another operator may have dispatched it."""
    features: Sequence[ExecutionFeature]
    api: OperatorApi
    supervisors: SupervisorClient
    tasks: TaskRegistry
    nodes: NodeCache
    _accepted: bool = False
    """Whether the sandbox has accepted the job, so that it must not be dispatched again."""
    _is_idle: bool = False
    """Whether nothing can have run, because the sandbox said so just now."""

    async def execute(self) -> ExecutionOutcome:
        """Dispatch the job, follow its events and return the outcome. Raises EndedBeforeRun if it need not begin."""
        execution = self.execution
        if not self.binding.pod.seen.address and (problem := await self._find_pod()) is not None:
            return self._build_cancellation() if execution.cancelled else self._build_loss(problem)
        pod = self.binding.pod
        connection = self.supervisors.get_connection(
            namespace=execution.facts.namespace, pod=pod.name, address=pod.seen.address, digest=pod.seen.token_sha256
        )
        await self._check_dispatch(connection)
        supervision = RunSupervision(
            execution=execution,
            pod=pod,
            connection=connection,
            api=self.api,
            tasks=self.tasks,
            nodes=self.nodes,
        )
        try:
            async with execution.deadline.running(connection):
                observer = self.tasks.spawn(supervision.run(), name=f"observe {pod.name}")
                try:
                    end = await self._follow(connection)
                finally:
                    observer.cancel()
        except (StreamLost, TimeoutError) as error:
            return await self._explain_loss(error, supervision)
        if execution.cancelled and end.phase is Phase.CANCELLED:
            return replace(self._build_cancellation(), has_ended=True)
        output = self.output
        outcome = self._build_outcome(end.phase, output.reason, output.message, output.error)
        return replace(outcome, has_ended=True, left_clean=output.reason.is_clean and not execution.is_unwanted)

    async def _check_dispatch(self, connection: SupervisorConnection) -> None:
        """Check what another operator may have left undone, or what has changed since the binding.

        A sandbox that is not idle has accepted what was bound: its events are followed and nothing is dispatched.
        Raises EndedBeforeRun if the code has not begun and must not.
        """
        execution = self.execution
        changed = execution.seen.status.get("specDigest") != execution.facts.digest
        lacks_grants = self.pending is None and any(part.needs_broker for part in execution.parts)
        if not changed and not lacks_grants and not execution.is_unwanted:
            return
        try:
            state, last = await connection.get_execution()
            self._is_idle = state == "idle" and last != execution.facts.uid
        except SandboxError:
            self._is_idle = False
        if not self._is_idle:
            self._accepted = self.output.replayed = True
            return
        if execution.is_unwanted:
            raise EndedBeforeRun(build_cancellation(execution.cancelled))
        if changed:
            message = "the spec was changed between its binding and its run"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))

    async def _follow(self, connection: SupervisorConnection) -> EndEvent:
        """Return the last event, after as many connections as needed. Raises StreamLost and EndedBeforeRun."""
        failures = 0
        while True:
            before = self.output.seq
            try:
                async with aclosing(await self._open(connection)) as events:
                    async for event in events:
                        if not self._accepted:
                            self._accepted = True
                            self.execution.source.release(is_sent=True)
                        self.output.add(event)
                        if self.output.end is not None:
                            return self.output.end
                        self.execution.notify_parts(event, features=self.features)
            except (InterpreterLost, SandboxUsed) as refusal:
                self._check_refusal(refusal)
                self._accepted = self.output.replayed = True
            except SandboxError as error:
                failures = failures + 1 if self.output.seq == before else 1
                if self.binding.pod.lost or failures > len(_RECONNECT_DELAYS):
                    raise StreamLost(str(error)) from error
                log.info("the stream of a run broke: %s", error, extra=self.execution.log_fields)
                await asyncio.sleep(_RECONNECT_DELAYS[failures - 1])

    def _check_refusal(self, refusal: InterpreterLost | SandboxUsed) -> None:
        """Return if the sandbox refuses the job because it has accepted it already.

        Else nothing ran, or it is unknown what ran. Raises EndedBeforeRun if the pod is kept: what was in it is lost.
        Raises StreamLost else.
        """
        holder = self.execution.holder
        if isinstance(refusal, SandboxUsed) and refusal.id == self.execution.facts.uid:
            return
        if holder is None or self._accepted:
            raise StreamLost(str(refusal)) from refusal
        message = f"{holder.name} was lost: its interpreter ended after the last execution"
        raise EndedBeforeRun(build_failure(Reason.SESSION_LOST, message)) from refusal

    async def _open(self, connection: SupervisorConnection) -> AsyncGenerator[Event, None]:
        execution = self.execution
        seconds = execution.longest_seconds
        if self._accepted or self.output.seq:
            uid, following = execution.facts.uid, self.output.seq + 1
            return connection.follow_events(uid, from_seq=following, timeout_seconds=seconds)
        if (pending := self.pending) is not None:
            self.pending = None
            return pending.run()
        # a sandbox accepts no execution twice: to send the same one again can't run anything twice
        try:
            job, _ = await build_job(execution, self.binding)
        except EndedBeforeRun as ended:
            if self._is_idle:
                raise
            raise StreamLost(f"the job can't be sent again: {ended}") from ended
        if execution.source.changed:
            raise StreamLost("the spec was changed meanwhile, so that the job can't be sent again")
        return connection.run(job, timeout_seconds=seconds)

    async def _find_pod(self) -> PodProblem | None:
        """Read a pod whose name only is known. Return the problem if the pod is lost. Raises ApiError."""
        binding, body = self.binding, await self._read_pod()
        if body is not None:
            pods = binding.pool.pods
            pods.observe(body, now=monotonic())
            pod = pods.adopt(binding.pod.name, uid=self.execution.pod_uid, now=monotonic())
            self.execution.binding = self.binding = binding = replace(binding, pod=pod)
        pod = binding.pod
        return None if pod.seen.address else self.nodes.explain_loss(body, name=pod.name, node=pod.seen.node)

    async def _read_pod(self) -> Object | None:
        """Return the object of the execution's pod, or None if it is gone. Another pod of that name is not its own."""
        execution, known = self.execution, self.binding.pod
        pod = await self.api.get_pod(execution.facts.namespace, known.name)
        return pod if pod is not None and pod["metadata"]["uid"] == (execution.pod_uid or known.seen.uid) else None

    async def _explain_loss(self, error: Exception, supervision: RunSupervision) -> ExecutionOutcome:
        """Return why the run has no end: a cancellation, the time, or the state of the pod."""
        execution, known = self.execution, self.binding.pod
        try:
            pod = await self._read_pod()
        except ApiError:
            pod = known.seen.body
        if execution.cancelled:
            return self._build_cancellation()
        responds = isinstance(error, TimeoutError) and pod is not None
        responds = responds and not known.lost and not supervision.silent
        if execution.seen.cancel_requested and responds:
            message = f"cancelled; the run did not stop within {CANCEL_SECONDS:.0f} s"
            return self._build_outcome(Phase.CANCELLED, Reason.CANCELLED, message)
        if responds and self.output.seq:
            message = f"the run did not end within {self.execution.spec.timeout_seconds} s"
            failure = ExecutionError(type=Reason.TIMEOUT.value, message=message)
            return self._build_outcome(Phase.TIMED_OUT, Reason.TIMEOUT, message, failure)
        if pod is None and known.seen.has_ended:
            pod = known.seen.body  # the last object of a pod that is gone shows how it ended
        problem = self.nodes.explain_loss(pod, name=known.name, node=known.seen.node)
        if problem.reason is Reason.STREAM_BROKEN and not responds:
            problem = PodProblem(reason=problem.reason, message=f"{problem.message}: {error}")
        # the message may quote the log of the container, and code can write that in gVisor
        log.warning("a run was lost: %s (%s)", problem.reason, error, extra=execution.log_fields)
        return self._build_loss(problem)

    def _build_cancellation(self) -> ExecutionOutcome:
        message = f"cancelled: {self.execution.cancelled}"
        return self._build_outcome(Phase.CANCELLED, Reason.CANCELLED, message)

    def _build_loss(self, problem: PodProblem) -> ExecutionOutcome:
        error = ExecutionError(type=problem.reason.value, message=problem.message)
        return self._build_outcome(Phase.FAILED, problem.reason, problem.message, error)

    def _build_outcome(
        self,
        phase: Phase,
        reason: Reason,
        message: str,
        error: ExecutionError | None = None,
    ) -> ExecutionOutcome:
        """Return an outcome with the output so far, when the code began, what it used, and the known durations."""
        execution, binding, output = self.execution, self.binding, self.output
        bound_at, bound = datetime.fromisoformat(execution.seen.status["boundAt"]), binding.recorded
        usage = build_usage(
            output.end,
            pod=binding.pod.seen.body,
            sandbox_seconds=(now() - bound_at).total_seconds() if bound is None else monotonic() - bound,
            code_bytes=execution.facts.code_bytes,
        )
        workspace = output.workspace if execution.spec.workspace is not None else None
        return ExecutionOutcome(
            phase=phase,
            reason=reason,
            message=message,
            error=error,
            output=output.build_output() if output.seq else None,
            started_at=output.limit_start(bound_at=bound_at),
            usage=usage,
            artifacts=list(output.artifacts.values()),
            notes=output.notes,
            workspace=drop_empty_fields(workspace.to_api()) if workspace is not None else None,
            durations=output.measure(bound=bound, bind_milliseconds=binding.record_milliseconds),
        )
