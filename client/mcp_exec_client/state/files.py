"""Files of workspaces."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcp_exec_api.wire.workspaces import CommitResult, WorkspaceFile, WorkspaceFileList
from mcp_exec_client.errors import NotFound, Outdated
from mcp_exec_client.event_stream import streamed
from mcp_exec_client.options import suggesting
from mcp_exec_client.state.channel import RequestChannel, Upload, open_download, quote_path, send_upload
from mcp_exec_client.state.folders import (
    EXCLUDED,
    UNSAFE,
    LocalFile,
    LocalNames,
    NameFilter,
    find_repositories,
    find_target,
    is_within,
    pack_changes,
    scan_folder,
)
from mcp_exec_client.state.results import MAX_READ_BYTES, SyncResult, write_file
from mcp_exec_client.state.workspaces import build_condition, workspace_path
from mcp_exec_client.transport import read_all
from mcp_exec_client.types import parse_reply

_SYNC_ATTEMPTS: Final = 5
"""Attempts of a synchronization while others save to the same workspace."""


@suggesting
class Files:
    """Files of the caller's workspaces. `user` names the user whose workspace is meant, if its executions have one."""

    def __init__(self, channel: RequestChannel) -> None:
        self._channel = channel

    @streamed
    def list(
        self, workspace: str, *, prefix: str = "", version: int | None = None, user: str | None = None
    ) -> AsyncGenerator[WorkspaceFile, None]:
        """Yield the files whose path begins so, of the newest version or of another, in the order of their paths."""
        return self._channel.list_items(
            WorkspaceFileList,
            workspace_path(workspace, "files"),
            query={"prefix": prefix or None, "version": _text(version), "user": user},
            cursor="after",
            find_next=lambda page: page.next,
        )

    async def read(
        self,
        workspace: str,
        path: str,
        *,
        version: int | None = None,
        max_bytes: int = MAX_READ_BYTES,
        user: str | None = None,
    ) -> bytes:
        """Return the bytes of a file."""
        query = self._channel.query(user=user, version=_text(version))
        async with open_download(self._channel.transport, _path(workspace, path), query=query) as parts:
            return await read_all(parts, limit=max_bytes, what=path)

    async def save(
        self, workspace: str, path: str, target: str | Path, *, version: int | None = None, user: str | None = None
    ) -> Path:
        """Write a file of a workspace to a local file, or into a local folder, and return the local path."""
        local = _find_local(Path(target), path)
        query = self._channel.query(user=user, version=_text(version))
        async with open_download(self._channel.transport, _path(workspace, path), query=query) as parts:
            await write_file(local, parts, check=lambda digest: None)
        return local

    async def write(
        self,
        workspace: str,
        path: str,
        content: bytes | str | Path,
        *,
        executable: bool = False,
        if_match: str | None = None,
        must_be_new: bool = False,
        user: str | None = None,
    ) -> CommitResult:
        """Write one file: bytes, text in UTF-8, or a local file by its Path. Creates the workspace if needed.

        With `if_match`, the `etag` of a version or the SHA-256 of the file, it is written only if this is the current
        one; with `must_be_new`, only if the file does not exist. Otherwise it raises Outdated. If an answer was lost,
        the client writes again, and the text of Outdated says that the first attempt may have succeeded.
        """
        upload = _build_upload(content)
        query = self._channel.query(user=user, executable="true" if executable else None)
        headers = build_condition(if_match, must_be_new=must_be_new)
        target = _path(workspace, path)
        reply = await send_upload(self._channel.transport, "PUT", target, query=query, upload=upload, headers=headers)
        return parse_reply(CommitResult, reply)

    async def delete(
        self, workspace: str, path: str, *, if_match: str | None = None, user: str | None = None
    ) -> CommitResult:
        """Delete a file, or a folder with all its files. `if_match` is that of `write`."""
        return await self._channel.fetch(
            CommitResult, "DELETE", _path(workspace, path), query={"user": user}, headers=build_condition(if_match)
        )

    async def sync(
        self,
        workspace: str,
        folder: str | Path,
        *,
        delete: bool = False,
        exclude: Collection[str] = EXCLUDED,
        user: str | None = None,
    ) -> SyncResult:
        """Bring a local folder's files into a workspace, as one version; only those that changed travel.

        With `delete`, files that the folder does not have are deleted. Links and names in `exclude` are left out, and
        files of the workspace with such names stay, as do those that `pull` leaves out. If others save to the
        workspace meanwhile, the folder is compared again.
        """
        local = await scan_folder(Path(folder), exclude=exclude)
        for attempt in range(_SYNC_ATTEMPTS):
            remote = await self._list_all(workspace, user)
            try:
                gone = _find_gone(remote.files, local, exclude=exclude) if delete else ()
                return await self._send_changes(workspace, local, remote, gone=gone, user=user)
            except Outdated:
                if attempt == _SYNC_ATTEMPTS - 1:
                    raise
        raise AssertionError

    async def _send_changes(
        self,
        workspace: str,
        local: Mapping[str, LocalFile],
        remote: "_Listed",
        *,
        gone: Sequence[str],
        user: str | None,
    ) -> SyncResult:
        changed = [file for path, file in local.items() if not _is_same(file, remote.files.get(path))]
        version = remote.version
        if changed or gone:
            condition = build_condition(remote.etag or None, must_be_new=not remote.exists)
            async with pack_changes(changed, delete=gone) as packed:
                reply = await send_upload(
                    self._channel.transport,
                    "POST",
                    workspace_path(workspace, "changes"),
                    query=self._channel.query(user=user),
                    upload=Upload.of(packed),
                    headers=condition,
                )
            version = parse_reply(CommitResult, reply).version
        return SyncResult(
            uploaded=tuple(file.path for file in changed),
            deleted=tuple(gone),
            unchanged=len(local) - len(changed),
            version=version,
        )

    async def pull(
        self,
        workspace: str,
        folder: str | Path,
        *,
        version: int | None = None,
        exclude: Collection[str] = UNSAFE,
        user: str | None = None,
    ) -> SyncResult:
        """Bring a version's files into a local folder; only those that differ travel. No local file is deleted.

        Files and folders with names in `exclude`, such as hidden ones and `*.pth`, are left out, and folders that git
        takes for repositories: code in a sandbox may have written what programs on this machine execute because it is
        there. With an empty `exclude` everything is written. Raises ValueError if two files are one for the local file
        system, which may ignore case or forms of letters.
        """
        root = Path(folder)
        local = await scan_folder(root, exclude=())
        downloaded: list[str] = []
        left_out: list[str] = []
        unchanged = 0
        shown = version or (await self._list_page(workspace, user)).version
        version = shown or None  # that of all files, whatever others save meanwhile
        names = LocalNames(root)
        files = [file async for file in self.list(workspace, version=version, user=user)]
        # Together with what is there: a repository may arrive in parts, by several versions.
        repositories = find_repositories([*local, *(file.path for file in files)]) if exclude else ()
        excluded = NameFilter(exclude)
        for file in files:
            names.claim(file.path)
            if _is_same(local.get(file.path), file):
                unchanged += 1
                continue
            if excluded.matches(file.path) or is_within(file.path, repositories):
                left_out.append(file.path)
                continue
            target = find_target(root, file.path)
            await self.save(workspace, file.path, target, version=version, user=user)
            target.chmod(0o755 if file.mode & 0o100 else 0o644)
            downloaded.append(file.path)
        return SyncResult(downloaded=tuple(downloaded), unchanged=unchanged, left_out=tuple(left_out), version=shown)

    async def _list_page(self, workspace: str, user: str | None) -> WorkspaceFileList:
        path = workspace_path(workspace, "files")
        return await self._channel.fetch(WorkspaceFileList, "GET", path, query={"user": user, "limit": "1"})

    async def _list_all(self, workspace: str, user: str | None) -> "_Listed":
        """Return all files of the newest version; nothing if the workspace does not exist."""
        try:
            page = await self._list_page(workspace, user)
            version = page.version or None
            files = {file.path: file async for file in self.list(workspace, version=version, user=user)}
        except NotFound:
            return _Listed(files={}, version=0, etag="", exists=False)
        return _Listed(files=files, version=page.version, etag=page.etag, exists=True)


@dataclass(frozen=True, kw_only=True)
class _Listed:
    """The files of a workspace's newest version."""

    files: Mapping[str, WorkspaceFile]
    version: int
    etag: str
    exists: bool


def _is_same(local: LocalFile | None, stored: WorkspaceFile | None) -> bool:
    if local is None or stored is None:
        return False
    return local.sha256 == stored.sha256 and local.executable == bool(stored.mode & 0o100)


def _build_upload(content: bytes | str | Path) -> Upload:
    return Upload.of(content.encode() if isinstance(content, str) else content)


def _find_local(target: Path, path: str) -> Path:
    return target / path.rpartition("/")[2] if target.is_dir() else target


def _path(workspace: str, path: str) -> str:
    return workspace_path(workspace, "files", quote_path(path))


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _find_gone(remote: Collection[str], local: Collection[str], *, exclude: Collection[str]) -> list[str]:
    """Return the files of the workspace to delete: those that the folder lacks, without those it never gets."""
    kept = NameFilter(UNSAFE | set(exclude) if exclude else ())
    repositories = find_repositories(remote) if exclude else ()
    return sorted(
        path for path in remote if path not in local and not kept.matches(path) and not is_within(path, repositories)
    )
