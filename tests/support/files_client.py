"""A client of the broker's routes for workspaces and artifacts, as gateway and operator use them."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from mcp_exec_api.files import Owner
from mcp_exec_api.meta import Model
from mcp_exec_api.wire.problems import PROBLEM_MEDIA_TYPE, ProblemDetails
from mcp_exec_api.wire.workspaces import (
    MAX_PAGE,
    CommitResult,
    Workspace,
    WorkspaceFileList,
    WorkspaceList,
    WorkspaceSettings,
    WorkspaceVersionList,
)
from mcp_exec_common.broker.client import BrokerClient, BrokerResponse
from mcp_exec_common.broker.files import CALLER_LIMIT, FilesReason, WorkspaceCount
from mcp_exec_tools.workspace_files import is_digest
from tests.support.pace import paced

_MAX_BYTES: Final = 16 * 1024 * 1024
_SECONDS: Final = paced(30.0)
_HEADERS: Final = {
    name: re.compile(r"[\x20-\x7e]+") for name in ("ETag", "X-Workspace-Version", "X-Artifact-Name", "Retry-After")
}
_Content = TypeVar("_Content", bound=Model)
Body = bytes | AsyncIterator[bytes]
"""A body, or its parts."""


class FilesError(Exception):
    """A refused request on files, as problem details say it."""

    def __init__(self, problem: ProblemDetails, *, reason: FilesReason, version: int | None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.status = problem.status
        self.reason = reason
        self.version = version
        """Newest version of the workspace, if the reason is OUTDATED."""


@dataclass(frozen=True, kw_only=True)
class FileStream:
    """The content of a file, an artifact or a tar archive."""

    chunks: AsyncIterator[bytes]
    size: int | None
    media_type: str
    name: str
    """Name of an artifact."""
    version: int | None
    etag: str
    """Tag of the content, without quotation marks: the digest, or for an archive the tag of the version."""

    @property
    def sha256(self) -> str:
        """Digest of the content; empty for an archive."""
        return self.etag if is_digest(self.etag) else ""


@dataclass(frozen=True, kw_only=True)
class WriteCondition:
    """What must hold for a write to take place, as the headers of the same names say it."""

    if_match: str | None = None
    if_none_match: str | None = None

    def to_headers(self) -> dict[str, str]:
        """Return the headers."""
        given = {"If-Match": self.if_match, "If-None-Match": self.if_none_match}
        return {name: value for name, value in given.items() if value is not None}


NO_CONDITION: Final = WriteCondition()


@dataclass(frozen=True)
class FilesClient:
    """Reads and writes the workspaces and artifacts of owners. All methods raise FilesError."""

    broker: BrokerClient

    async def list_workspaces(self, owner: Owner) -> WorkspaceList:
        """Return the workspaces of an owner, by name."""
        return await self._ask(WorkspaceList, "GET", owner, "/v1/workspaces")

    async def count_workspaces(self, owner: Owner) -> int:
        """Return the number of workspaces of the owner's caller, for all users."""
        return (await self._ask(WorkspaceCount, "GET", owner, "/v1/workspace-count")).count

    async def get_workspace(self, owner: Owner, name: str) -> Workspace:
        """Return a workspace."""
        return await self._ask(Workspace, "GET", owner, _path(name))

    async def put_workspace(
        self, owner: Owner, name: str, settings: WorkspaceSettings, *, caller_limit: int | None = None
    ) -> Workspace:
        """Create a workspace, or replace its settings.

        `caller_limit` is the number of workspaces that the owner's caller may have, for all of its users. It bounds
        the creation by this and by each method that writes.
        """
        params = _parameters(**{CALLER_LIMIT: caller_limit})
        return await self._ask(Workspace, "PUT", owner, _path(name), params=params, content=settings.to_api())

    async def delete_workspace(self, owner: Owner, name: str) -> None:
        """Delete a workspace with all its versions."""
        async with self._send("DELETE", owner, _path(name)):
            pass

    async def list_files(
        self, owner: Owner, name: str, *, version: int | None = None, prefix: str = "", after: str = "",
        limit: int = MAX_PAGE,
    ) -> WorkspaceFileList:  # fmt: skip
        """Return a page of the files of a version, by path; without one, of the newest."""
        params = _parameters(version=version, prefix=prefix, after=after, limit=limit)
        return await self._ask(WorkspaceFileList, "GET", owner, _path(name, "files"), params=params)

    @asynccontextmanager
    async def open_file(
        self, owner: Owner, name: str, path: str, *, version: int | None = None
    ) -> AsyncIterator[FileStream]:
        """Open a file of a version; without one, of the newest."""
        target = _path(name, "files", path)
        async with self._open(owner, target, params=_parameters(version=version)) as stream:
            yield stream

    async def put_file(
        self,
        owner: Owner,
        name: str,
        path: str,
        body: Body,
        *,
        executable: bool = False,
        condition: WriteCondition = NO_CONDITION,
        caller_limit: int | None = None,
    ) -> CommitResult:
        """Write one file, and create the workspace if the owner has none of this name."""
        params = _parameters(executable="true" if executable else "", **{CALLER_LIMIT: caller_limit})
        target = _path(name, "files", path)
        return await self._ask(CommitResult, "PUT", owner, target, params=params, body=body, condition=condition)

    async def delete_files(
        self, owner: Owner, name: str, path: str, *, condition: WriteCondition = NO_CONDITION
    ) -> CommitResult:
        """Delete a file, or a folder with all its files."""
        return await self._ask(CommitResult, "DELETE", owner, _path(name, "files", path), condition=condition)

    @asynccontextmanager
    async def open_tar(
        self, owner: Owner, name: str, *, version: int | None = None, prefix: str = ""
    ) -> AsyncIterator[FileStream]:
        """Open a tar archive of a version's files; without one, of the newest."""
        params = _parameters(version=version, prefix=prefix)
        async with self._open(owner, _path(name, "tar"), params=params) as stream:
            yield stream

    async def put_tar(
        self,
        owner: Owner,
        name: str,
        body: Body,
        *,
        replace: bool = False,
        condition: WriteCondition = NO_CONDITION,
        caller_limit: int | None = None,
    ) -> CommitResult:
        """Write the files of an uncompressed tar archive as one version; with `replace`, remove all other files.

        Creates the workspace if the owner has none of this name.
        """
        params = _parameters(replace="true" if replace else "", **{CALLER_LIMIT: caller_limit})
        target = _path(name, "tar")
        return await self._ask(CommitResult, "PUT", owner, target, params=params, body=body, condition=condition)

    async def change(
        self,
        owner: Owner,
        name: str,
        body: Body,
        *,
        condition: WriteCondition = NO_CONDITION,
        caller_limit: int | None = None,
    ) -> CommitResult:
        """Write and delete files as one version: a line of JSON, a `ChangeHead`, and a tar archive.

        Creates the workspace if the owner has none of this name.
        """
        params, target = _parameters(**{CALLER_LIMIT: caller_limit}), _path(name, "changes")
        return await self._ask(CommitResult, "POST", owner, target, params=params, body=body, condition=condition)

    async def list_versions(self, owner: Owner, name: str) -> WorkspaceVersionList:
        """Return the versions that can be read and restored, newest first."""
        return await self._ask(WorkspaceVersionList, "GET", owner, _path(name, "versions"))

    async def restore(
        self, owner: Owner, name: str, version: int, *, condition: WriteCondition = NO_CONDITION
    ) -> CommitResult:
        """Commit the files of an earlier version as a new one."""
        target, content = _path(name, "restore"), {"version": version}
        return await self._ask(CommitResult, "POST", owner, target, content=content, condition=condition)

    @asynccontextmanager
    async def open_artifact(self, owner: Owner, execution: str, id: str) -> AsyncIterator[FileStream]:
        """Open an artifact of an execution, by the execution's uid."""
        async with self._open(owner, f"/v1/artifacts/{quote(execution, safe='')}/{quote(id, safe='')}") as stream:
            yield stream

    async def delete_artifacts(self, owner: Owner, execution: str) -> None:
        """Delete all artifacts of an execution, by the execution's uid. Those that do not exist are ignored."""
        async with self._send("DELETE", owner, f"/v1/artifacts/{quote(execution, safe='')}"):
            pass

    async def _ask(
        self,
        answer: type[_Content],
        method: str,
        owner: Owner,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: Mapping[str, Any] | None = None,
        body: Body | None = None,
        condition: WriteCondition = NO_CONDITION,
    ) -> _Content:
        body = body if content is None else json.dumps(content).encode()
        async with self._send(method, owner, path, params=params, body=body, condition=condition) as response:
            return answer.model_validate(await response.parse(limit=_MAX_BYTES))

    @asynccontextmanager
    async def _open(
        self, owner: Owner, path: str, *, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[FileStream]:
        async with self._send("GET", owner, path, params=params) as response:
            headers = response.pick_headers(_HEADERS)
            version = headers.get("X-Workspace-Version")
            yield FileStream(
                chunks=response.iterate(),
                size=response.size,
                etag=headers["ETag"].strip('"'),
                media_type=response.media_type,
                name=unquote(headers.get("X-Artifact-Name", "")),
                version=None if version is None else int(version),
            )

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        owner: Owner,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Body | None = None,
        condition: WriteCondition = NO_CONDITION,
    ) -> AsyncIterator[BrokerResponse]:
        query = {**(params or {}), "namespace": owner.namespace, "owner": owner.digest, "caller": owner.caller_digest}
        headers = condition.to_headers()
        sending = self.broker.send(method, path, params=query, body=body, headers=headers, timeout_seconds=_SECONDS)
        async with sending as response:
            if response.status >= 300:
                raise await _read_problem(response)
            yield response


async def _read_problem(response: BrokerResponse) -> FilesError:
    content = await response.parse(limit=_MAX_BYTES)
    problem, headers = ProblemDetails.model_validate(content), response.pick_headers(_HEADERS)
    assert (response.media_type, response.status) == (PROBLEM_MEDIA_TYPE, problem.status)
    version = headers.get("X-Workspace-Version")
    return FilesError(problem, reason=FilesReason(content["reason"]), version=None if version is None else int(version))


def _path(name: str, *rest: str) -> str:
    return "/".join(["/v1/workspaces", quote(name, safe=""), *(quote(part) for part in rest)])


def _parameters(**given: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in given.items() if value not in (None, "")}
