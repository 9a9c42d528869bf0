"""Access of an execution's supervisor to the broker's store: its workspace, and room for artifacts."""

from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from time import time
from typing import Final

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.files import MAX_ARTIFACTS
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.broker.client import BrokerError
from mcp_exec_common.broker.files import ArtifactAllowance, FilesGrant, WorkspaceAccess
from mcp_exec_common.supervisor.protocol import JobFiles
from mcp_exec_operator.executions.binding import Binding, run_deadline_seconds
from mcp_exec_operator.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.toolservers.component import BrokerDiscovery

_GRACE_SECONDS: Final = 60
"""How long a grant outlives the longest run, for its binding."""
_CLOSE_SECONDS: Final = 2.0
_ALLOWANCE: Final = ArtifactAllowance(count=MAX_ARTIFACTS)


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
