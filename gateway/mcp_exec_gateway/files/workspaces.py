"""Workspaces of callers, which the broker stores: quota, files, versions, archives."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache

from mcp_exec_api.files import Owner
from mcp_exec_api.wire.workspaces import (
    CommitResult,
    Workspace,
    WorkspaceFileList,
    WorkspaceList,
    WorkspaceSettings,
    WorkspaceVersionList,
)
from mcp_exec_common.broker.files_client import NO_CONDITION, FilesClient, FileStream, WriteCondition
from mcp_exec_gateway.auth.callers import Caller
from mcp_exec_gateway.files.response import translating_refusals
from mcp_exec_gateway.files.upload import UploadBody, translating_uploads
from mcp_exec_gateway.http.problems import HttpProblem, invalid_field, unavailable
from mcp_exec_tools.workspace_files import check_path

_KNOWN_SECONDS: Final = 60.0
_MAX_KNOWN: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class WorkspaceService:
    """Workspaces as the broker has them. All methods raise HttpProblem."""

    client: FilesClient | None
    """None if no broker is configured."""
    max_upload_bytes: int
    """Most bytes of a file."""
    max_archive_bytes: int
    """Most bytes of an archive or a change set."""
    known: TTLCache[tuple[str, str], bool]
    """Workspaces that exist, by the owner's digest and name."""

    @classmethod
    def create(cls, client: FilesClient | None, *, max_upload_bytes: int, max_archive_bytes: int) -> "WorkspaceService":
        """Create the service."""
        known: TTLCache[tuple[str, str], bool] = TTLCache(maxsize=_MAX_KNOWN, ttl=_KNOWN_SECONDS)
        return cls(client=client, max_upload_bytes=max_upload_bytes, max_archive_bytes=max_archive_bytes, known=known)

    async def list_own(self, owner: Owner) -> WorkspaceList:
        """Return the owner's workspaces."""
        with translating_refusals():
            return await self._client.list_workspaces(owner)

    async def get(self, owner: Owner, name: str) -> Workspace:
        """Return a workspace."""
        with translating_refusals():
            return await self._client.get_workspace(owner, name)

    async def put(self, owner: Owner, name: str, settings: WorkspaceSettings, *, caller: Caller) -> Workspace:
        """Create a workspace or replace its settings."""
        await self.admit(owner, name, caller=caller)
        with translating_refusals():
            limit = caller.limits.max_workspaces
            return await self._client.put_workspace(owner, name, settings, caller_limit=limit)

    async def delete(self, owner: Owner, name: str) -> None:
        """Delete a workspace with all its versions."""
        with translating_refusals():
            await self._client.get_workspace(owner, name)  # a missing one is a 404
            await self._client.delete_workspace(owner, name)
        self.known.pop((owner.digest, name), None)

    async def list_files(
        self, owner: Owner, name: str, *, version: int | None, prefix: str, after: str, limit: int
    ) -> WorkspaceFileList:
        """Return a page of the files of a version."""
        with translating_refusals():
            return await self._client.list_files(owner, name, version=version, prefix=prefix, after=after, limit=limit)

    @asynccontextmanager
    async def open_file(
        self, owner: Owner, name: str, path: str, *, version: int | None = None
    ) -> AsyncIterator[FileStream]:
        """Open a file of a version."""
        check_file_path(path)
        with translating_refusals():
            async with self._client.open_file(owner, name, path, version=version) as stream:
                yield stream

    async def put_file(
        self,
        owner: Owner,
        name: str,
        path: str,
        body: UploadBody,
        *,
        caller: Caller,
        executable: bool = False,
        condition: WriteCondition = NO_CONDITION,
    ) -> CommitResult:
        """Write one file as a new version."""
        check_file_path(path)
        await self.admit(owner, name, caller=caller)
        with translating_uploads(body):
            return await self._client.put_file(
                owner,
                name,
                path,
                body.read(),
                executable=executable,
                condition=condition,
                caller_limit=caller.limits.max_workspaces,
            )

    async def delete_files(
        self, owner: Owner, name: str, path: str, *, condition: WriteCondition = NO_CONDITION
    ) -> CommitResult:
        """Delete a file or a folder as a new version."""
        check_file_path(path)
        with translating_refusals():
            return await self._client.delete_files(owner, name, path, condition=condition)

    @asynccontextmanager
    async def open_archive(
        self, owner: Owner, name: str, *, version: int | None, prefix: str
    ) -> AsyncIterator[FileStream]:
        """Open a tar archive of a version's files."""
        with translating_refusals():
            async with self._client.open_tar(owner, name, version=version, prefix=prefix) as stream:
                yield stream

    async def put_archive(
        self,
        owner: Owner,
        name: str,
        body: UploadBody,
        *,
        caller: Caller,
        replace: bool,
        condition: WriteCondition = NO_CONDITION,
    ) -> CommitResult:
        """Write the files of a tar archive as a new version."""
        await self.admit(owner, name, caller=caller)
        with translating_uploads(body):
            limit = caller.limits.max_workspaces
            return await self._client.put_tar(
                owner, name, body.read(), replace=replace, condition=condition, caller_limit=limit
            )

    async def change(
        self, owner: Owner, name: str, body: UploadBody, *, caller: Caller, condition: WriteCondition = NO_CONDITION
    ) -> CommitResult:
        """Write and delete files as one new version: a line of JSON, and a tar archive."""
        await self.admit(owner, name, caller=caller)
        with translating_uploads(body):
            limit = caller.limits.max_workspaces
            return await self._client.change(owner, name, body.read(), condition=condition, caller_limit=limit)

    async def list_versions(self, owner: Owner, name: str) -> WorkspaceVersionList:
        """Return the versions that can be read and restored."""
        with translating_refusals():
            return await self._client.list_versions(owner, name)

    async def restore(
        self, owner: Owner, name: str, version: int, *, condition: WriteCondition = NO_CONDITION
    ) -> CommitResult:
        """Commit the files of an earlier version as a new one."""
        with translating_refusals():
            return await self._client.restore(owner, name, version, condition=condition)

    async def admit(self, owner: Owner, name: str, *, caller: Caller) -> None:
        """Raise HttpProblem, a 413, if a workspace would be one more than the API key allows.

        Without a limit of the key, the broker's own applies. This refuses requests before their bodies are sent; the
        broker counts again when it creates the workspace, so that the limit holds for requests at the same time.
        """
        limit = caller.limits.max_workspaces
        if limit is None or (owner.digest, name) in self.known:
            return
        names = {workspace.name for workspace in (await self.list_own(owner)).items}
        for found in names:
            self.known[owner.digest, found] = True
        if name in names:
            return
        with translating_refusals():
            count = await self._client.count_workspaces(owner)
        if count >= limit:
            detail = (
                f"workspace: {caller.name} has {count} workspaces, those of all its users included, its limit is "
                f"{limit}, and {name} would be one more; use one of them, or delete one by DELETE /v1/workspaces/NAME"
            )
            raise HttpProblem("quota", 413, detail)

    @property
    def _client(self) -> FilesClient:
        if self.client is None:
            raise unavailable("no tool broker is configured, so that no files are stored")
        return self.client


def check_file_path(path: str) -> None:
    """Raise HttpProblem, a 422, for a path that no workspace can have."""
    try:
        check_path(path)
    except ValueError as error:
        raise invalid_field("path", str(error)) from None
