"""Placement of a workspace's files before the code starts: only what differs is removed or fetched."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from mcp_exec_sandbox.supervisor.files.connection import (
    Deadline,
    FilesConnection,
    FrameReader,
    TransferFailed,
    parse_answer,
    repeat,
)
from mcp_exec_sandbox.supervisor.files.workspace import (
    READ_BYTES,
    FolderCursor,
    KeptFile,
    WorkspaceFolder,
    WorkspaceVersion,
    create_file,
    find_path_problem,
    open_file,
    sign,
    split_path,
)
from mcp_exec_tools.workspace_files import RESERVED, check_paths, is_digest

MANIFEST_PATH = "/v1/files/manifest"
CONTENTS_PATH = "/v1/files/blobs/get"
BLOBS_PER_REQUEST = 10_000
MAX_FILES = 50_000
AGE_NANOSECONDS = 2_000_000_000
"""Age that a placed file has, so that every later change of it has another time."""
_MAX_BYTES = 1 << 60


def place_workspace(
    folder: WorkspaceFolder, client: FilesConnection, *, deadline: Deadline, is_untouched: bool = False
) -> None:
    """Make the working folder contain the newest files of the workspace. Files that belong to none stay.

    If the folder is untouched since it was saved, its files are not looked at. A broker that restarts is waited for.

    Raises:
        TransferRefused: the broker refused.
        TransferFailed: the broker did not deliver.
        OutOfTime: it took too long.
        OSError: a file can't be written.
    """
    reads_folder = not is_untouched

    def attempt() -> None:
        nonlocal reads_folder
        looks, reads_folder = reads_folder, True
        _place(folder, client, deadline=deadline, reads_folder=looks)

    repeat(attempt, deadline)


def _place(folder: WorkspaceFolder, client: FilesConnection, *, deadline: Deadline, reads_folder: bool) -> None:
    manifest = fetch_manifest(client, known=folder.base)
    if manifest is None and not reads_folder:
        return
    if manifest is None:
        assert folder.base is not None  # noqa: S101 - nothing else has not changed
        base, wanted = folder.base, dict(folder.files)
    else:
        base, wanted = manifest
    folder.remove([path for path in folder.files if path not in wanted])
    missing = _find_missing(folder, wanted, deadline, reads_folder=reads_folder)
    # known from now on, and without a signature not in place
    folder.base = base
    folder.files.update(missing)
    _fetch(folder, base, missing, client)


def fetch_manifest(
    client: FilesConnection, *, known: WorkspaceVersion | None = None
) -> tuple[WorkspaceVersion, dict[str, KeptFile]] | None:
    """Return the newest version and its files by path, or None if it is `known`.

    Raises TransferFailed if it is invalid, and what FilesConnection raises.
    """
    lines = client.read_lines(MANIFEST_PATH, known=known.tag if known is not None else None)
    if lines is None:
        return None
    head = parse_answer(next(lines, b""))
    names = ("version", "maxFiles", "maxBytes", "maxFileBytes", "files")
    version, max_files, max_bytes, max_file_bytes, count = (_read_count(head, name) for name in names)
    identity = head.get("id")
    if not isinstance(identity, str) or count > MAX_FILES:
        raise TransferFailed("the head of the broker's manifest is invalid")
    files = dict(_read_entry(parse_answer(line)) for line in islice(lines, MAX_FILES + 1))
    try:
        check_paths(files)
    except ValueError as error:
        raise TransferFailed(f"the broker's manifest is invalid: {error}") from error
    if len(files) != count:
        raise TransferFailed("the broker's manifest is not complete")
    base = WorkspaceVersion(
        id=identity, version=version, max_files=max_files, max_bytes=max_bytes, max_file_bytes=max_file_bytes
    )
    return base, files


def _read_count(values: Mapping[str, object], name: str) -> int:
    value = values.get(name)
    if type(value) is not int or not 0 <= value <= _MAX_BYTES:
        raise TransferFailed(f"the broker's manifest has no valid {name}")
    return value


def _read_entry(entry: Mapping[str, object]) -> tuple[str, KeptFile]:
    path, digest = entry.get("path"), entry.get("sha256")
    if not isinstance(path, str) or find_path_problem(path):
        raise TransferFailed("the broker's manifest has an invalid path")
    if not isinstance(digest, str) or not is_digest(digest):
        raise TransferFailed(f"the broker's manifest has no digest of {path[:200]!r}")
    return path, KeptFile(digest, _read_count(entry, "size"), entry.get("mode") == 0o755)


def _find_missing(
    folder: WorkspaceFolder, wanted: Mapping[str, KeptFile], deadline: Deadline, *, reads_folder: bool
) -> dict[str, KeptFile]:
    """Return the wanted files that are not in place. Of a folder without files of the workspace nothing is read."""
    found: Mapping[str, KeptFile] = {} if reads_folder else folder.files
    if folder.files and reads_folder:
        scan = folder.scan(deadline=deadline)
        scan.files = {path: signature for path, signature in scan.files.items() if path in wanted}
        found = folder.identify(scan, deadline)
    missing: dict[str, KeptFile] = {}
    for path, file in wanted.items():
        if path in found and found[path].has_content_of(file):
            folder.files[path] = found[path]
        else:
            missing[path] = KeptFile(file.sha256, file.size, file.executable)
    return missing


def _fetch(
    folder: WorkspaceFolder, base: WorkspaceVersion, missing: Mapping[str, KeptFile], client: FilesConnection
) -> None:
    """Fetch each content once, and write it to all its paths."""
    paths: dict[str, list[str]] = {}
    for path in sorted(missing):
        if path.partition("/")[0] not in RESERVED:
            paths.setdefault(missing[path].sha256, []).append(path)
    digests = iter(paths)
    with contextlib.closing(_FileWriter(folder, missing)) as writer:
        while batch := list(islice(digests, BLOBS_PER_REQUEST)):
            left = set(batch)
            contents = client.stream(CONTENTS_PATH, {"version": base.version, "sha256": batch})
            for digest in writer.write_all(contents, paths):
                left.discard(digest)
            if left:
                raise TransferFailed(f"the broker did not send {len(left)} of the workspace's files")


class _FileWriter:
    """Writer of fetched contents to their paths. A file that is not complete is removed."""

    def __init__(self, folder: WorkspaceFolder, missing: Mapping[str, KeptFile]) -> None:
        self._folder = folder
        self._missing = missing
        self._cursor = FolderCursor(folder.root)
        self._time = time.time_ns() - AGE_NANOSECONDS
        self._descriptor = -1

    def close(self) -> None:
        """Close the folder in use."""
        self._cursor.close()

    def _write(self, data: memoryview) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    def write_all(self, chunks: Iterator[bytes], paths: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Write the contents of a response, and yield the digest of each."""
        reader = FrameReader(chunks)
        while (head := reader.read_head()) is not None:
            digest, size = head
            targets = paths.get(digest, ())
            if not targets or self._missing[targets[0]].size != size:
                raise TransferFailed("the broker sent a file that was not requested")
            with self._creating(targets[0]):
                reader.read_body(self._write, digest, size)
            for path in targets[1:]:
                self._copy(targets[0], path)
            yield digest

    @contextlib.contextmanager
    def _creating(self, path: str) -> Iterator[None]:
        file = self._missing[path]
        parts, name = split_path(path)
        folder = self._cursor.open(parts, create=True)
        self._descriptor = create_file(folder, name, executable=file.executable)
        try:
            yield
            os.utime(self._descriptor, ns=(self._time, self._time))
            signature = sign(os.fstat(self._descriptor))
            self._folder.files[path] = KeptFile(file.sha256, file.size, file.executable, signature)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._cursor.open(parts))
            raise
        finally:
            os.close(self._descriptor)

    def _copy(self, source: str, target: str) -> None:
        parts, name = split_path(source)
        with open_file(self._cursor.open(parts), name) as (descriptor, _), self._creating(target):
            while data := os.read(descriptor, READ_BYTES):
                self._write(memoryview(data))
