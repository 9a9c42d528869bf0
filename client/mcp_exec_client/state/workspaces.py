"""Workspaces, which executions find and leave behind, and artifacts, which they produce."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final

from mcp_exec_api.wire.workspaces import CommitResult, Workspace, WorkspaceList, WorkspaceVersion, WorkspaceVersionList
from mcp_exec_client.errors import NotFound
from mcp_exec_client.options import suggesting
from mcp_exec_client.state.channel import RequestChannel, Upload, open_download, quote_segment, send_upload
from mcp_exec_client.state.results import MAX_READ_BYTES, ExecutionArtifact, ExecutionArtifacts, drop_unset, write_file
from mcp_exec_client.types import parse_reply

_WORKSPACES: Final = "/v1/workspaces"
_TAG: Final = re.compile(r"[!#-~]+-[0-9]+|[0-9a-f]{64}")
_TAR: Final = "application/x-tar"
_EXECUTIONS: Final = "/v1/executions"


@suggesting
class Workspaces:
    """The workspaces of the caller. `user` names the user whose workspaces are meant, if its executions have one."""

    def __init__(self, channel: RequestChannel) -> None:
        self._channel = channel

    async def list(self, *, user: str | None = None) -> Sequence[Workspace]:
        """Return the workspaces, in the order of their names."""
        return (await self._channel.fetch(WorkspaceList, "GET", _WORKSPACES, query={"user": user})).items

    async def get(self, name: str, *, user: str | None = None) -> Workspace:
        """Return a workspace as it is now."""
        return await self._channel.fetch(Workspace, "GET", workspace_path(name), query={"user": user})

    async def put(
        self,
        name: str,
        *,
        description: str | None = None,
        max_bytes: int | None = None,
        max_files: int | None = None,
        ttl_seconds: int | None = None,
        user: str | None = None,
    ) -> Workspace:
        """Create a workspace, or replace its settings. What is not given gets the installation's default.

        A file or an execution that names a workspace which does not exist creates it as well.
        """
        body: dict[str, Any] = {
            "description": description,
            "maxBytes": max_bytes,
            "maxFiles": max_files,
            "ttlSeconds": ttl_seconds,
        }
        return await self._channel.fetch(
            Workspace, "PUT", workspace_path(name), query={"user": user}, body=drop_unset(body)
        )

    async def delete(self, name: str, *, user: str | None = None) -> None:
        """Delete a workspace with all its versions."""
        await self._channel.send("DELETE", workspace_path(name), query={"user": user})

    async def versions(self, name: str, *, user: str | None = None) -> Sequence[WorkspaceVersion]:
        """Return the versions that can be read and restored, newest first."""
        path = workspace_path(name, "versions")
        return (await self._channel.fetch(WorkspaceVersionList, "GET", path, query={"user": user})).items

    async def restore(
        self, name: str, version: int, *, if_match: str | None = None, user: str | None = None
    ) -> CommitResult:
        """Save the files of an earlier version as a new one; with `if_match`, only if the newest has this `etag`."""
        return await self._channel.fetch(
            CommitResult,
            "POST",
            workspace_path(name, "restore"),
            query={"user": user},
            body={"version": version},
            headers=build_condition(if_match),
            repeatable=False,
        )

    async def save_archive(
        self, name: str, path: str | Path, *, version: int | None = None, user: str | None = None
    ) -> Path:
        """Write the files of a version to an uncompressed tar archive, and return its path."""
        query = self._channel.query(user=user, version=None if version is None else str(version))
        target = Path(path)
        async with open_download(self._channel.transport, workspace_path(name, "archive"), query=query) as parts:
            await write_file(target, parts, check=lambda digest: None)
        return target

    async def load_archive(
        self,
        name: str,
        path: str | Path,
        *,
        replace: bool = False,
        if_match: str | None = None,
        user: str | None = None,
    ) -> CommitResult:
        """Save the files of an uncompressed tar archive as one version; with `replace`, all others are removed.

        With `if_match`, the `etag` of a version, only if this is the newest one; otherwise it raises Outdated.
        """
        reply = await send_upload(
            self._channel.transport,
            "PUT",
            workspace_path(name, "archive"),
            query=self._channel.query(user=user, replace="true" if replace else None),
            upload=Upload.of(Path(path), media_type=_TAR),
            headers=build_condition(if_match),
        )
        return parse_reply(CommitResult, reply)


def build_condition(if_match: str | None, *, must_be_new: bool = False) -> dict[str, str]:
    """Return the headers of a write that takes place only if the workspace or file is as expected.

    Raises ValueError for an `if_match` that no workspace or file ever has.
    """
    if if_match is not None and not _TAG.fullmatch(if_match):
        raise ValueError(
            "if_match is the `etag` of a version, such as 0c7f5d0c-7, or the SHA-256 of a file, and not "
            f"{if_match[:80]!r}"
        )
    headers = {} if if_match is None else {"If-Match": f'"{if_match}"'}
    return headers | ({"If-None-Match": "*"} if must_be_new else {})


def workspace_path(name: str, *rest: str) -> str:
    """Return the path of a workspace or of a part of it. Raises NotFound for a name that would be another path."""
    return "/".join([_WORKSPACES, quote_segment(name), *rest])


@suggesting
class Artifacts:
    """Artifacts of the caller's executions, until their time to live is over."""

    def __init__(self, channel: RequestChannel) -> None:
        self._channel = channel

    async def list(self, execution: str, *, link_seconds: int | None = None) -> Sequence[ExecutionArtifact]:
        """Return the artifacts of an execution, in the order of their production.

        Each has a `url` that shows it in a browser, without a key, for so many seconds, 15 minutes by default.
        """
        query = {"linkSeconds": None if link_seconds is None else str(link_seconds)}
        items = await self._channel.fetch(ExecutionArtifacts, "GET", _path(execution), query=query)
        return self.attach(execution, items.items)

    async def get(self, execution: str, artifact: str) -> ExecutionArtifact:
        """Return the artifact with this id, or with this name if only one has it. Raises NotFound."""
        items = await self.list(execution)
        found = [item for item in items if item.id == artifact] or [item for item in items if item.name == artifact]
        if len(found) == 1:
            return found[0]
        names = ", ".join(f"{item.id} ({item.name})" for item in items[:20]) or "none"
        how = "several artifacts" if found else "no artifact"
        raise NotFound(
            f"execution {execution} has {how} {artifact[:100]!r}; it has: {names}", kind="not-found", status=404
        )

    async def read(self, execution: str, artifact: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return the bytes of the artifact with this id or name."""
        return await (await self.get(execution, artifact)).read(max_bytes=max_bytes)

    async def save(self, execution: str, artifact: str, path: str | Path | None = None) -> Path:
        """Write the artifact with this id or name to a file, or into a folder, and return the file's path."""
        return await (await self.get(execution, artifact)).save(path)

    def attach(self, execution: str, artifacts: Sequence[ExecutionArtifact]) -> Sequence[ExecutionArtifact]:
        """Let the artifacts of an execution be read by this client, and return them."""
        for artifact in artifacts:
            artifact.attach(partial(self._open, execution, artifact.id))
        return artifacts

    def _open(self, execution: str, artifact: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        path = f"{_path(execution)}/{quote_segment(artifact)}"
        return open_download(self._channel.transport, path, query=self._channel.query())


def _path(execution: str) -> str:
    return f"{_EXECUTIONS}/{quote_segment(execution)}/artifacts"
