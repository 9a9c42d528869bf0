"""Saving of a workspace after the run: only changed files are read, only new contents travel, all of it or nothing."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from mcp_exec_sandbox.supervisor.files.connection import PASSING, FilesConnection, TransferFailed, encode_line, repeat
from mcp_exec_sandbox.supervisor.files.deadline import Deadline
from mcp_exec_sandbox.supervisor.files.tree import TooManyFiles
from mcp_exec_sandbox.supervisor.files.upload import Content, upload_blobs
from mcp_exec_sandbox.supervisor.files.workspace import RESERVED, KeptFile, WorkspaceFolder, WorkspaceVersion

COMMIT_PATH = "/v1/files/commit"
SMALL_FILES, SMALL_BYTES = 256, 4 * 1024 * 1024
"""Of a workspace with at most so many files and bytes all files are read: in gVisor a write through a memory map
changes no time of its file."""
_PASSING = PASSING | {"MissingContents"}
"""Reasons of refusals that another attempt may not meet: the last one, if a restarted broker has lost contents."""


@dataclass(frozen=True, kw_only=True)
class SavedWorkspace:
    """What was saved. `version` is the newest one, also if nothing has changed."""

    version: int
    changed_files: int
    bytes: int
    left_out: int
    notes: list[str] = field(default_factory=list)


def save_workspace(folder: WorkspaceFolder, client: FilesConnection, *, deadline: Deadline) -> SavedWorkspace:
    """Commit what differs from the version that was put in place.

    Raises:
        TooManyFiles: there are more files or bytes than the workspace may have.
        TransferRefused: the broker refused.
        TransferFailed: the broker did not confirm.
        OutOfTime: it took too long.
        OSError: the folder can't be read.
    """
    base = folder.base
    assert base is not None  # noqa: S101 - a workspace was put in place
    scan = folder.scan(deadline=deadline, base=base)
    large = [path for path, signature in scan.files.items() if signature.size > base.max_file_bytes]
    if large:
        raise TooManyFiles(f"{min(large)[:200]!r} has more than {base.max_file_bytes} bytes")
    is_small = len(scan.files) <= SMALL_FILES and scan.bytes <= SMALL_BYTES
    found = folder.identify(scan, deadline, reads_all=is_small)
    # files with reserved names, which a request may have written to the workspace, are never in place
    found |= {path: file for path, file in folder.files.items() if path.partition("/")[0] in RESERVED}
    changed = len(found.keys() | folder.files.keys()) - _count_same(folder.files, found)
    version, merged = _commit_with_retries(folder, base, found, client, deadline) if changed else (base.version, False)
    # of a version with changes of others, too, this folder does not have all files
    folder.base, folder.files = None if merged else replace(base, version=version), found
    folder.is_untouched = not merged
    total = sum(file.size for file in found.values())
    return SavedWorkspace(version=version, changed_files=changed, bytes=total, left_out=scan.left_out, notes=scan.notes)


def _count_same(before: Mapping[str, KeptFile], after: Mapping[str, KeptFile]) -> int:
    return sum(
        1
        for path, file in after.items()
        if (known := before.get(path)) is not None and (known is file or known.has_content_of(file))
    )


def _commit_with_retries(
    folder: WorkspaceFolder,
    base: WorkspaceVersion,
    found: Mapping[str, KeptFile],
    client: FilesConnection,
    deadline: Deadline,
) -> tuple[int, bool]:
    known: Collection[str] = {file.sha256 for file in folder.files.values()}

    def attempt() -> tuple[int, bool]:
        nonlocal known
        assumed, known = known, ()  # what a restarted broker has received need not be sent again, but must be asked
        return _commit(folder, base, found, client, known=assumed)

    return repeat(attempt, deadline, passing=_PASSING)


def _commit(
    folder: WorkspaceFolder,
    base: WorkspaceVersion,
    found: Mapping[str, KeptFile],
    client: FilesConnection,
    *,
    known: Collection[str],
) -> tuple[int, bool]:
    """Send contents that are not `known`, then the list of all files. A repetition has the same answer.

    Return the version, and whether it has changes of others as well.
    """
    blobs = {
        file.sha256: Content(file.sha256, file.size, path) for path, file in found.items() if file.sha256 not in known
    }
    upload_blobs(folder.root, blobs, client)
    lines = [encode_line({"id": base.id, "base": base.version, "files": len(found)})]
    lines += [_describe(path, file) for path, file in sorted(found.items())]
    answer = client.upload(COMMIT_PATH, [b"".join(lines)], sum(map(len, lines)))
    version = answer.get("version")
    if type(version) is not int or version < base.version:
        raise TransferFailed("the broker's answer has no version")
    return version, answer.get("merged") is True


def _describe(path: str, file: KeptFile) -> bytes:
    mode = 0o755 if file.executable else 0o644
    return encode_line({"path": path, "size": file.size, "sha256": file.sha256, "mode": mode})
