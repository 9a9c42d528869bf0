"""What the gateway has of files: workspaces, artifacts, and their transfers."""

from dataclasses import dataclass

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.files import Owner
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.http.limits import RequestSlots
from mcp_exec_gateway.features.files.artifacts import ArtifactService
from mcp_exec_gateway.features.files.forwarding import FilesForwarder
from mcp_exec_gateway.features.files.workspaces import WorkspaceQuotas


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files that outlive their execution. The broker stores them."""

    forwarder: FilesForwarder
    workspaces: WorkspaceQuotas
    artifacts: ArtifactService
    transfer_slots: RequestSlots
    """Files that are sent or received, by caller."""

    async def admit_execution(self, spec: CodeExecutionSpec, *, owner: Owner, caller: Caller) -> None:
        """Raise HttpProblem, a 413, if the workspace of a new execution would be one too many of the API key's."""
        if spec.workspace is not None:
            await self.workspaces.admit(owner, spec.workspace.name, caller=caller)
