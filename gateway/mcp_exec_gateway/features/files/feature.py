"""Registration of files: workspaces and artifacts."""

from typing import Final

from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.core.http.limits import RequestSlots
from mcp_exec_gateway.features.files import artifact_routes, workspace_routes
from mcp_exec_gateway.features.files.artifacts import ArtifactService, LinkSigner
from mcp_exec_gateway.features.files.examples import EXAMPLES
from mcp_exec_gateway.features.files.forwarding import FilesForwarder
from mcp_exec_gateway.features.files.service import Files
from mcp_exec_gateway.features.files.workspaces import WorkspaceQuotas


def build(core: Dependencies) -> None:
    """Build workspaces and artifacts: the former check executions that name one, the latter go with theirs."""
    settings, forwarder = core.settings, FilesForwarder(core.broker)
    files = Files(
        forwarder=forwarder,
        workspaces=WorkspaceQuotas(files=forwarder),
        artifacts=ArtifactService(
            files=forwarder, attestor=core.attestor, links=LinkSigner(keys=core.supervisors.keys)
        ),
        transfer_slots=RequestSlots(
            kind="transfers of files",
            max_total=settings.max_transfers,
            max_each=settings.max_transfers_per_caller,
            retry_seconds=2,
        ),
    )
    core.add(files)
    core.extensions.admissions.append(files.admit_execution)
    core.extensions.deletions.append(files.artifacts.delete_all)


FILES: Final = Feature(build=build, routers=(artifact_routes.router, workspace_routes.router), examples=EXAMPLES)
