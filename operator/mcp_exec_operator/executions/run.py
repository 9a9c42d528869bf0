"""One run: its stream under supervision, and its outcome, also if the stream has no end."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic

from mcp_exec_api.code_execution import ExecutionError, Phase
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.executions.attempt import Attempt, Feature
from mcp_exec_operator.executions.outcome import ExecutionOutcome
from mcp_exec_operator.executions.output import OutputCollector, RunFacts
from mcp_exec_operator.executions.record import BoundPod
from mcp_exec_operator.executions.stream import RunStream, StreamLost
from mcp_exec_operator.executions.supervision import CANCEL_SECONDS, RunSupervision
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.pods.nodes import NodeCache
from mcp_exec_operator.pods.status import PodProblem

log = logging.getLogger(__name__)


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
        connection = self.supervisors.get_connection(namespace=record.namespace, pod=pod.name, address=pod.address)
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
        uid = record.pod_uid or known.uid
        # an operator of an earlier release recorded no uid; the pod still has to prove that it holds its token's digest
        return pod if pod is not None and (not uid or pod["metadata"]["uid"] == uid) else None

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
