"""Files of executions: grants for workspaces and artifacts, and one writer at a time for each workspace."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from time import monotonic, time
from typing import Final

from mcp_exec_api.code_execution import CodeExecutionSpec, Phase, QueuePlace
from mcp_exec_api.execution_state import read_phase
from mcp_exec_api.files import MAX_ARTIFACTS
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.broker.client import BrokerError
from mcp_exec_common.broker.files import ArtifactAllowance, FilesGrant, WorkspaceAccess
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.protocol import JobFiles
from mcp_exec_operator.executions.admission import check_still_wanted
from mcp_exec_operator.executions.binding import Binding, run_deadline_seconds
from mcp_exec_operator.executions.outcome import EndedBeforeRun, Superseded, build_failure
from mcp_exec_operator.executions.record import ExecutionRecord, WorkspaceKey
from mcp_exec_operator.executions.status import build_pending_status
from mcp_exec_operator.executions.status_writer import ExecutionStatusWriter
from mcp_exec_operator.queueing.turns import SerialQueue, Turn, first_update_after, next_update_after
from mcp_exec_operator.queueing.wait_queue import QueueFull
from mcp_exec_operator.toolservers.component import BrokerDiscovery

_GRACE_SECONDS: Final = 60
"""How long a grant outlives the longest run, for its binding."""
_CLOSE_SECONDS: Final = 2.0
_ALLOWANCE: Final = ArtifactAllowance(count=MAX_ARTIFACTS)
MAX_WAITING: Final = 100
"""Executions that wait for one workspace."""
WAIT_SECONDS: Final = 900.0
"""How long an execution waits at most."""
_CHECK_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class FilesIssuer:
    """Grants files to executions."""

    broker: BrokerDiscovery | None
    """The broker; None if none is configured: then nothing of a run is kept."""

    def check(self, spec: CodeExecutionSpec) -> None:
        """Raise EndedBeforeRun if an execution names a workspace and there can be none."""
        if spec.workspace is not None and self.broker is None:
            message = "spec.workspace: there are no workspaces, since this installation has no broker"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))

    def grant(self, record: ExecutionRecord, binding: Binding) -> JobFiles | None:
        """Return the files of the execution's job; None if it has no workspace and nothing can be kept.

        Raises EndedBeforeRun if it names a workspace and the broker has no pod.
        """
        workspace = binding.spec.workspace
        replica = self.broker.choose_replica(record.uid) if self.broker is not None else None
        if self.broker is None or replica is None:
            if workspace is None:
                return None
            message = f"the files of workspace {workspace.name} are not available: the broker has no pod"
            raise EndedBeforeRun(build_failure(Reason.WORKSPACE_UNAVAILABLE, message))
        access = None
        if workspace is not None:
            access = WorkspaceAccess(name=workspace.name, mode=workspace.mode)
        grant = FilesGrant(
            namespace=record.namespace,
            owner=record.owner.digest,
            caller=record.owner.caller_digest,
            execution=record.uid,
            workspace=access,
            artifacts=_ALLOWANCE,
            pod_address=binding.pod.address,
            replica=replica.uid,
            expires=ceil(time() + run_deadline_seconds(binding.spec)) + _GRACE_SECONDS,
        )
        return JobFiles(
            url=replica.url,
            token=self.broker.signer.sign_files_grant(grant),
            workspace=workspace,
            max_artifacts=_ALLOWANCE.count,
            max_artifact_bytes=_ALLOWANCE.total_bytes,
        )

    async def close(self, record: ExecutionRecord) -> None:
        """Let the broker forget what a run has uploaded and not committed."""
        if self.broker is not None:
            with suppress(BrokerError):
                await self.broker.client.close_files(record.uid, timeout_seconds=_CLOSE_SECONDS)

    async def revoke(self, record: ExecutionRecord) -> None:
        """End the grant of an execution whose sandbox may still run, so that the next writer meets no late commit."""
        if self.broker is not None:
            with suppress(BrokerError):
                await self.broker.client.close_calls(record.uid, timeout_seconds=_CLOSE_SECONDS)


@dataclass(kw_only=True, eq=False)
class WorkspaceTurns:
    """Turns at workspaces. An execution has its turn until its end is written and its grant is void."""

    writer: ExecutionStatusWriter
    wait_seconds: float = WAIT_SECONDS
    clock: Callable[[], datetime] = now
    _queue: SerialQueue[WorkspaceKey] = field(default_factory=SerialQueue)
    _turns: dict[str, Turn[WorkspaceKey]] = field(default_factory=dict)
    """By uid of the execution."""

    def hold(self, record: ExecutionRecord) -> None:
        """Take the turn of an execution that another operator has bound. It never waits."""
        if record.workspace is not None and record.uid not in self._turns:
            self._turns[record.uid] = self._queue.hold(record.workspace)

    def leave(self, record: ExecutionRecord) -> None:
        """End the turn of an execution, or its wait."""
        if (turn := self._turns.pop(record.uid, None)) is not None:
            self._queue.leave(turn)

    async def wait(self, record: ExecutionRecord, *, on_wait: Callable[[], None]) -> None:
        """Return when the execution has its turn. The status has the reason and its position meanwhile.

        `on_wait` is called before a wait, to release memory.

        Raises EndedBeforeRun if too many wait or it waits too long, and what ExecutionStatusWriter raises.
        """
        if record.workspace is None or record.uid in self._turns:
            return
        try:
            turn = self._queue.join(record.workspace, limit=MAX_WAITING, wakeup=record.wakeup)
        except QueueFull as error:
            message = f"{error}: too many executions write to workspace {record.workspace.name}"
            raise EndedBeforeRun(build_failure(Reason.WORKSPACE_BUSY, message)) from error
        self._turns[record.uid] = turn
        if not turn.is_granted:
            on_wait()
            await self._wait(record, turn)

    async def _wait(self, record: ExecutionRecord, turn: Turn[WorkspaceKey]) -> None:
        began = monotonic()
        written: QueuePlace | None = None
        write_at = began + first_update_after(self._queue.count_waiting(turn.key))
        while not turn.is_granted:
            next_at = min(began + self.wait_seconds, write_at)
            await turn.pause(min(_CHECK_SECONDS, max(0.0, next_at - monotonic())))
            record.wakeup.clear()
            check_still_wanted(record)
            at = monotonic()
            if turn.is_granted:
                return
            if at >= began + self.wait_seconds:
                message = (
                    f"another execution has written to workspace {turn.key.name} for {self.wait_seconds:.0f} s, "
                    f"{self._queue.place(turn)}"
                )
                raise EndedBeforeRun(build_failure(Reason.WORKSPACE_BUSY, message))
            if at >= write_at:
                write_at = at + next_update_after(self._queue.count_waiting(turn.key))
                place = self._queue.place(turn)
                if place != written:
                    await self._write(record, turn.key, place)
                    written = place

    async def _write(self, record: ExecutionRecord, key: WorkspaceKey, place: QueuePlace) -> None:
        def decide(body: Object) -> Object | None:
            if read_phase(body) is not Phase.PENDING:
                raise Superseded
            return build_pending_status(
                body.get("status") or {},
                reason=Reason.WORKSPACE_BUSY,
                message=f"another execution writes to workspace {key.name}",
                place=place,
                moment=self.clock(),
                created=record.created_at(),
            )

        await self.writer.write(record, decide, what="pending")
