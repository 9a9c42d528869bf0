"""Files of executions: grants for workspaces and artifacts, and one writer at a time for each workspace."""

from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from time import time
from typing import Final, NamedTuple

from pydantic import ValidationError

from mcp_exec_api.files import MAX_ARTIFACTS, NOBODYS, Owner, WorkspaceMode, WorkspaceRef
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.broker.files import ArtifactAllowance, FilesGrant, WorkspaceAccess
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.protocol import Event, JobFiles
from mcp_exec_operator.cluster.broker import BrokerDiscovery
from mcp_exec_operator.core.executions.execution import Execution
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, ExecutionOutcome, build_failure
from mcp_exec_operator.core.executions.part import JobDraft, Part
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter, wait_for_turn
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.queueing.turns import SerialQueue, Turn
from mcp_exec_operator.core.queueing.wait_queue import QueueFull

_CLOSE_SECONDS: Final = 2.0
_WORKSPACE_SECONDS: Final = 120.0
"""How long a sandbox may take to put a workspace in place before the run, and to save it afterwards."""
_ALLOWANCE: Final = ArtifactAllowance(count=MAX_ARTIFACTS)
_MAX_WAITING: Final = 100
"""Executions that wait for one workspace."""
_WAIT_SECONDS: Final = 900.0
"""How long an execution waits at most."""


class WorkspaceKey(NamedTuple):
    """Identity of a workspace: the digest of its owner, and its name."""

    owner: str
    name: str


@dataclass(kw_only=True, eq=False)
class FilesPart(Part):
    """Files of one execution. One that writes to a workspace has its turn until its end is written."""

    execution: Execution
    broker: BrokerDiscovery | None
    """The broker; None if none is configured: then nothing of a run is kept."""
    writer: ExecutionStatusWriter
    tasks: TaskRegistry
    queue: SerialQueue[WorkspaceKey]
    written: WorkspaceKey | None
    """The workspace that it writes, if any."""
    _turn: Turn[WorkspaceKey] | None = None
    """Its turn at the workspace, from joining the queue to its end."""
    _files: JobFiles | None = None
    """The files of the job, once they are granted."""

    def adopt(self) -> None:
        """Hold the turn of an execution that is bound."""
        if self.written is not None and self._turn is None:
            self._turn = self.queue.hold(self.written)

    async def admit(self) -> None:
        """Reject a workspace if there can be none. Wait until no other execution writes to it, and for the broker."""
        self._files = None  # of an attempt that was not bound
        if self.execution.spec.workspace is None:
            return
        if self.broker is None:
            message = "spec.workspace: there are no workspaces, since this installation has no broker"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))
        if self.execution.facts.owner.is_nobody:
            raise EndedBeforeRun(build_failure(Reason.REJECTED, f"spec.workspace: {NOBODYS}"))
        await self._take_turn()
        await self.broker.wait_for_replica()

    async def _take_turn(self) -> None:
        """Wait until no other execution writes to the workspace that this one writes to."""
        key = self.written
        if key is None:
            return
        if self._turn is None:
            try:
                self._turn = self.queue.join(key, limit=_MAX_WAITING, wakeup=self.execution.wakeup)
            except QueueFull as error:
                message = f"{error}: too many executions write to workspace {key.name}"
                raise EndedBeforeRun(build_failure(Reason.WORKSPACE_BUSY, message)) from error
        await wait_for_turn(
            self.execution,
            self._turn,
            self.queue,
            writer=self.writer,
            reason=Reason.WORKSPACE_BUSY,
            message=f"another execution writes to workspace {key.name}",
            timeout_seconds=_WAIT_SECONDS,
            timeout_message=f"another execution has written to workspace {key.name}",
        )

    async def join(self, job: JobDraft) -> None:
        """Add the files to the job."""
        if self._files is None:
            self._files = self._grant()
        job.files = self._files

    async def finish(self, outcome: ExecutionOutcome) -> ExecutionOutcome:
        """Revoke the grant of a writer whose sandbox may still commit, and discard what others did not commit."""
        if (broker := self._find_broker()) is None or self.execution.deleted:
            return outcome
        if outcome.has_ended:
            uid = self.execution.facts.uid
            self.tasks.spawn(_discard(broker, uid), name=f"discard files of {self.execution.facts.name}")
        else:
            await _revoke(broker, self.execution)
        return outcome

    async def stop(self) -> None:
        """Revoke the grant of an execution that was deleted. A further attempt gets another grant."""
        self._files = None
        if self.execution.deleted and (broker := self._find_broker()) is not None:
            self.tasks.spawn(_revoke(broker, self.execution), name=f"revoke files of {self.execution.facts.name}")

    def leave(self, *, decided: bool) -> bool:
        """End the turn of an execution, or its wait."""
        if self._turn is not None:
            self.queue.leave(self._turn)
            self._turn = None
        return False

    def _find_broker(self) -> BrokerClient | None:
        """Return the broker if it has files to end. It ends those of an execution with tools with its calls."""
        if self.written is None or self.broker is None or self.execution.spec.tools:
            return None
        return self.broker.client

    def _grant(self) -> JobFiles | None:
        """Return the files of the execution's job; None if it has no workspace and nothing can be kept.

        Raises EndedBeforeRun if it names a workspace and the broker has no pod.
        """
        facts, workspace, binding = self.execution.facts, self.execution.spec.workspace, self.execution.binding
        replica = self.broker.choose_replica(facts.uid) if self.broker is not None else None
        if self.broker is None or replica is None or binding is None:
            if workspace is None:
                return None
            message = f"the files of workspace {workspace.name} are not available: the broker has no pod"
            raise EndedBeforeRun(build_failure(Reason.WORKSPACE_UNAVAILABLE, message))
        access = None
        if workspace is not None:
            access = WorkspaceAccess(name=workspace.name, mode=workspace.mode)
        grant = FilesGrant(
            namespace=facts.namespace,
            owner=facts.owner.digest,
            caller=facts.owner.caller_digest,
            execution=facts.uid,
            workspace=access,
            artifacts=_ALLOWANCE,
            pod_address=binding.pod.seen.address,
            replica=replica.uid,
            expires=ceil(time()) + self.execution.deadline.grant_seconds,
        )
        return JobFiles(
            url=replica.url,
            token=self.broker.signer.sign(grant),
            workspace=workspace,
            max_artifacts=_ALLOWANCE.count,
            max_artifact_bytes=_ALLOWANCE.total_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Files:
    """Grants files to executions, and lets one at a time write to a workspace."""

    broker: BrokerDiscovery | None
    """The broker; None if none is configured: then nothing of a run is kept."""
    writer: ExecutionStatusWriter
    tasks: TaskRegistry
    events: tuple[type[Event], ...] = ()
    _queue: SerialQueue[WorkspaceKey] = field(default_factory=SerialQueue)

    def take_part(self, execution: Execution, *, pool: Pool, event: Event | None = None) -> Part | None:
        """Take part if the execution names a workspace, or if its artifacts can be kept."""
        given = (execution.source.spec or {}).get("workspace")
        if given is None and self.broker is None:
            return None
        part = FilesPart(
            execution=execution,
            broker=self.broker,
            writer=self.writer,
            tasks=self.tasks,
            queue=self._queue,
            written=_read_written(given, execution.facts.owner),
        )
        if given is not None:
            part.run_seconds, part.needs_broker = _WORKSPACE_SECONDS, True
        return part


def _read_written(given: object, owner: Owner) -> WorkspaceKey | None:
    """Return the workspace that a spec writes, if any. The spec may be invalid."""
    try:
        workspace = WorkspaceRef.model_validate(given)
    except ValidationError:
        return None
    return WorkspaceKey(owner=owner.digest, name=workspace.name) if workspace.mode is WorkspaceMode.WRITE else None


async def _discard(broker: BrokerClient, uid: str) -> None:
    """Let the broker discard what a run has uploaded and not committed."""
    with suppress(BrokerError):
        await broker.close_files(uid, timeout_seconds=_CLOSE_SECONDS)


async def _revoke(broker: BrokerClient, execution: Execution) -> None:
    """Revoke the grant of a sandbox that may still run, so that the next writer meets no late commit."""
    with suppress(BrokerError):
        await broker.close_calls(
            execution.facts.uid, grant_seconds=execution.deadline.grant_seconds, timeout_seconds=_CLOSE_SECONDS
        )
