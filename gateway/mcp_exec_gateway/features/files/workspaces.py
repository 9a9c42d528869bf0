"""Workspaces of callers, which the broker stores: their paths, and how many an API key may have."""

from dataclasses import dataclass, field
from typing import Final

from cachetools import TTLCache

from mcp_exec_api.files import Owner
from mcp_exec_api.wire.workspaces import WorkspaceList
from mcp_exec_common.broker.files import CALLER_LIMIT, WorkspaceCount
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field
from mcp_exec_gateway.features.files.forwarding import FilesForwarder
from mcp_exec_tools.workspace_files import check_new_path, check_path

_KNOWN_SECONDS: Final = 60.0
_MAX_KNOWN: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class WorkspaceQuotas:
    """The limits of API keys on workspaces."""

    files: FilesForwarder
    known: TTLCache[tuple[str, str], bool] = field(default_factory=lambda: TTLCache(_MAX_KNOWN, _KNOWN_SECONDS))
    """Workspaces that exist, by the owner's digest and name."""

    async def admit(self, owner: Owner, name: str, *, caller: Caller) -> dict[str, str]:
        """Return the parameters of a request that may create a workspace.

        Raises HttpProblem, a 413, if it would be one more than the API key allows. Without a limit of the key, the
        broker's own applies. This refuses requests before their bodies are sent; the broker counts again when it
        creates the workspace, so that the limit holds for requests at the same time.
        """
        limit = caller.limits.max_workspaces
        if limit is None:
            return {}
        if (owner.digest, name) not in self.known:
            await self._check(owner, name, caller=caller, limit=limit)
        return {CALLER_LIMIT: str(limit)}

    def forget(self, owner: Owner, name: str) -> None:
        """Count again before a workspace of this name is created."""
        self.known.pop((owner.digest, name), None)

    async def _check(self, owner: Owner, name: str, *, caller: Caller, limit: int) -> None:
        listed = await self.files.ask(WorkspaceList, "GET", "workspaces", owner=owner)
        names = {workspace.name for workspace in listed.items}
        for found in names:
            self.known[owner.digest, found] = True
        if name in names:
            return
        count = (await self.files.ask(WorkspaceCount, "GET", "workspace-count", owner=owner)).count
        if count >= limit:
            detail = (
                f"workspace: {caller.name} has {count} workspaces, those of all its users included, its limit is "
                f"{limit}, and {name} would be one more; use one of them, or delete one by DELETE /v1/workspaces/NAME"
            )
            raise HttpProblem("quota", 413, detail)


def split_path(path: str, *, is_new: bool = False) -> list[str]:
    """Return the parts of a file's path. Raises HttpProblem, a 422, for a path that no workspace can have.

    With `is_new`, also for one that no file can be written to.
    """
    try:
        (check_new_path if is_new else check_path)(path)
    except ValueError as error:
        raise invalid_field("path", str(error)) from None
    return path.split("/")
