"""Files of executions: grants for workspaces and artifacts, and one writer at a time for each workspace."""

from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from time import time
from typing import Final

from mcp_exec_api.files import MAX_ARTIFACTS, NOBODYS
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.broker.files import ArtifactAllowance, FilesGrant, WorkspaceAccess
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.protocol import JobFiles
from mcp_exec_operator.cluster.broker import BrokerDiscovery
from mcp_exec_operator.core.executions.attempt import Attempt, Feature
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.core.executions.record import ExecutionRecord, WorkspaceKey
from mcp_exec_operator.core.executions.waiting import wait_for_turn
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.queueing.turns import SerialQueue
from mcp_exec_operator.core.queueing.wait_queue import QueueFull

_CLOSE_SECONDS: Final = 2.0
_ALLOWANCE: Final = ArtifactAllowance(count=MAX_ARTIFACTS)
_MAX_WAITING: Final = 100
"""Executions that wait for one workspace."""
_WAIT_SECONDS: Final = 900.0
"""How long an execution waits at most."""


@dataclass(frozen=True, kw_only=True)
class Files(Feature):
    """Grants files to executions. One that writes to a workspace has its turn until its end is written."""

    broker: BrokerDiscovery | None
    """The broker; None if none is configured: then nothing of a run is kept."""
    writer: ExecutionStatusWriter
    tasks: TaskRegistry
    _queue: SerialQueue[WorkspaceKey] = field(default_factory=SerialQueue)

    def adopt(self, record: ExecutionRecord) -> None:
        """Hold the turn of an execution that another operator has bound."""
        if record.workspace is not None and record.workspace_turn is None:
            record.workspace_turn = self._queue.hold(record.workspace)

    async def admit(self, attempt: Attempt) -> None:
        """Reject a workspace if there can be none. Wait until no other execution writes to it, and for the broker."""
        if attempt.spec.workspace is None:
            return
        if self.broker is None:
            message = "spec.workspace: there are no workspaces, since this installation has no broker"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))
        if attempt.record.owner.is_nobody:
            raise EndedBeforeRun(build_failure(Reason.REJECTED, f"spec.workspace: {NOBODYS}"))
        await self._take_turn(attempt)
        await self.broker.wait_for_replica()

    async def _take_turn(self, attempt: Attempt) -> None:
        """Wait until no other execution writes to the workspace that this one writes to."""
        record, key = attempt.record, attempt.record.workspace
        if key is None:
            return
        if record.workspace_turn is None:
            try:
                record.workspace_turn = self._queue.join(key, limit=_MAX_WAITING, wakeup=record.wakeup)
            except QueueFull as error:
                message = f"{error}: too many executions write to workspace {key.name}"
                raise EndedBeforeRun(build_failure(Reason.WORKSPACE_BUSY, message)) from error
        await wait_for_turn(
            attempt,
            record.workspace_turn,
            self._queue,
            writer=self.writer,
            reason=Reason.WORKSPACE_BUSY,
            message=f"another execution writes to workspace {key.name}",
            timeout_seconds=_WAIT_SECONDS,
            timeout_message=f"another execution has written to workspace {key.name}",
        )

    async def prepare(self, attempt: Attempt) -> None:
        """Add the files to the job."""
        if attempt.needs_job and attempt.files is None:
            attempt.files = self._grant(attempt)

    async def finish(self, attempt: Attempt) -> None:
        """Revoke the grant of a writer whose sandbox may still commit, and discard what others did not commit."""
        record = attempt.record
        if record.workspace is None or self.broker is None or attempt.spec.tools:
            return  # the broker ends the files of an execution with its calls
        if record.deleted:
            self.tasks.spawn(_revoke(self.broker.client, attempt), name=f"revoke the files of {record.name}")
        elif attempt.outcome is not None and not attempt.ended:
            await _revoke(self.broker.client, attempt)
        elif attempt.outcome is not None:
            self.tasks.spawn(_discard(self.broker.client, record.uid), name=f"discard files of {record.name}")

    def leave(self, record: ExecutionRecord, *, decided: bool) -> bool:
        """End the turn of an execution, or its wait."""
        if record.workspace_turn is not None:
            self._queue.leave(record.workspace_turn)
            record.workspace_turn = None
        return False

    def _grant(self, attempt: Attempt) -> JobFiles | None:
        """Return the files of the execution's job; None if it has no workspace and nothing can be kept.

        Raises EndedBeforeRun if it names a workspace and the broker has no pod.
        """
        record, workspace = attempt.record, attempt.spec.workspace
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
            pod_address=attempt.pod.address,
            replica=replica.uid,
            expires=ceil(time()) + attempt.deadline.grant_seconds,
        )
        return JobFiles(
            url=replica.url,
            token=self.broker.signer.sign_files_grant(grant),
            workspace=workspace,
            max_artifacts=_ALLOWANCE.count,
            max_artifact_bytes=_ALLOWANCE.total_bytes,
        )


async def _discard(broker: BrokerClient, uid: str) -> None:
    """Let the broker discard what a run has uploaded and not committed."""
    with suppress(BrokerError):
        await broker.close_files(uid, timeout_seconds=_CLOSE_SECONDS)


async def _revoke(broker: BrokerClient, attempt: Attempt) -> None:
    """Revoke the grant of a sandbox that may still run, so that the next writer meets no late commit."""
    with suppress(BrokerError):
        await broker.close_calls(
            attempt.record.uid, grant_seconds=attempt.deadline.grant_seconds, timeout_seconds=_CLOSE_SECONDS
        )
