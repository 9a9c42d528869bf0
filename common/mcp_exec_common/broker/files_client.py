"""Client of the broker's routes for workspaces and artifacts, for operator and gateway.

All replicas have the same store. The requests of one owner reach the same replica, as long as it is ready.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

import aiohttp
from pydantic import ValidationError

from mcp_exec_api.files import Owner
from mcp_exec_api.meta import Model
from mcp_exec_api.wire.workspaces import (
    MAX_PAGE,
    CommitResult,
    Workspace,
    WorkspaceFileList,
    WorkspaceList,
    WorkspaceSettings,
    WorkspaceVersionList,
)
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.broker.files import CALLER_LIMIT, MAX_UPLOAD_SECONDS, FilesReason, WorkspaceCount
from mcp_exec_common.peers import InvalidAnswer, parse_answer, read_answer
from mcp_exec_tools.workspace_files import is_digest

_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_SECONDS: Final = 30.0
_TRANSFER_SECONDS: Final = 900.0
_UPLOAD_SECONDS: Final = MAX_UPLOAD_SECONDS + 60.0
_STALL_SECONDS: Final = 60.0
_CHUNK_BYTES: Final = 256 * 1024
_Content = TypeVar("_Content", bound=Model)
Body = bytes | AsyncIterator[bytes]
"""A body, or its parts."""


class FilesError(BrokerError):
    """A refused request on files, or a broker that cannot be reached: then the reason is UNAVAILABLE."""

    def __init__(self, message: str, *, reason: FilesReason, status: int = 0, version: int | None = None) -> None:
        super().__init__(message, status=status)
        self.reason = reason
        self.version = version
        """Newest version of the workspace, if the reason is OUTDATED."""


@dataclass(frozen=True, kw_only=True)
class FileStream:
    """The content of a file, an artifact or a tar archive."""

    chunks: AsyncIterator[bytes]
    """Parts of the content. Raises FilesError if it breaks off."""
    size: int | None
    """Size in bytes; None for an archive."""
    sha256: str = ""
    """Digest of the content; empty for an archive."""
    media_type: str = "application/octet-stream"
    """Media type of an artifact."""
    name: str = ""
    """Name of an artifact."""
    version: int | None = None
    """Version of the workspace."""
    etag: str = ""
    """Tag of the content, without quotation marks: the digest, or for an archive the tag of the version."""


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
        sending = self._send(method, owner, path, params=params, content=content, body=body, condition=condition)
        async with sending as response:
            try:
                return answer.model_validate(parse_answer(await read_answer(response, limit=_MAX_ANSWER_BYTES)))
            except (InvalidAnswer, ValidationError) as error:
                raise _unavailable(f"the broker's answer is not valid: {type(error).__name__}") from error
            except (aiohttp.ClientError, TimeoutError) as error:
                raise _unavailable(f"the broker's answer broke off: {type(error).__name__} {error}") from error

    @asynccontextmanager
    async def _open(
        self, owner: Owner, path: str, *, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[FileStream]:
        async with self._send("GET", owner, path, params=params, seconds=_TRANSFER_SECONDS) as response:
            version = response.headers.get("X-Workspace-Version", "")
            etag = response.headers.get("ETag", "").strip('"')
            yield FileStream(
                chunks=_read_chunks(response),
                size=response.content_length,
                sha256=etag if is_digest(etag) else "",
                etag=etag,
                media_type=response.content_type,
                name=unquote(response.headers.get("X-Artifact-Name", "")),
                version=int(version) if version.isdecimal() else None,
            )

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        owner: Owner,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: Mapping[str, Any] | None = None,
        body: Body | None = None,
        condition: WriteCondition = NO_CONDITION,
        seconds: float = _SECONDS,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        query = {**(params or {}), "namespace": owner.namespace, "owner": owner.digest, "caller": owner.caller_digest}
        headers = condition.to_headers()
        if content is not None:
            body, headers["Content-Type"] = json.dumps(content).encode(), "application/json"
        is_upload = body is not None and content is None
        sending = self.broker.send(
            method,
            path,
            near=owner.digest,
            params=query,
            body=body,
            headers=headers,
            timeout_seconds=_UPLOAD_SECONDS if is_upload else seconds,
            stall_seconds=None if is_upload else _STALL_SECONDS,
        )
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(sending)
            except BrokerError as error:
                raise _unavailable(str(error)) from error
            await _check(response)
            yield response


async def _read_chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            yield chunk
    except (aiohttp.ClientError, TimeoutError) as error:
        raise _unavailable(f"the content broke off: {type(error).__name__} {error}") from error


async def _check(response: aiohttp.ClientResponse) -> None:
    """Raise FilesError unless the broker answers the request."""
    if response.status < 300:
        return
    try:
        body = await read_answer(response, limit=_MAX_ANSWER_BYTES)
        content = parse_answer(body)
        reason, message = FilesReason(content["reason"]), str(content["message"])[:2000]
        found = content.get("version")
        version = found if type(found) is int else None
    except (InvalidAnswer, KeyError, ValueError, aiohttp.ClientError, TimeoutError):
        reason = FilesReason.DISABLED if response.status == 404 else FilesReason.UNAVAILABLE
        message, version = f"the broker answered {response.status} without a reason", None
        if reason is FilesReason.DISABLED:
            message = "this installation stores no files: broker.files.enabled of the chart's values is false"
    raise FilesError(message, reason=reason, status=response.status, version=version)


def _unavailable(message: str) -> FilesError:
    return FilesError(message, reason=FilesReason.UNAVAILABLE)


def _path(name: str, *rest: str) -> str:
    return "/".join(["/v1/workspaces", quote(name, safe=""), *(quote(part) for part in rest)])


def _parameters(**given: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in given.items() if value not in (None, "")}
