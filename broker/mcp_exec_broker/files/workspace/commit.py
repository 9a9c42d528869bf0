"""How a new version is made of what a writer sends and of the versions before. Nothing is read or written here."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mcp_exec_api.wire.workspaces import CommitResult
from mcp_exec_broker.files.errors import FilesRefused, build_invalid, build_too_large
from mcp_exec_broker.files.limits import MAX_PATHS_BYTES
from mcp_exec_broker.files.workspace.compaction import count_bytes
from mcp_exec_broker.files.workspace.manifest import (
    Files,
    Location,
    Manifest,
    VersionFile,
    VersionSummary,
    index_files,
)
from mcp_exec_common.broker.files import FilesReason, build_tag

MAX_NAMED: Final = 10
"""Paths that a message names."""
MAX_MISSING: Final = 1000
"""Missing contents that an answer names."""

Change = Callable[[Files], Files]
"""Returns the files of the next version, from those of the newest."""


@dataclass(frozen=True, kw_only=True)
class CommitLimits:
    """Limits of a version."""

    max_bytes: int
    max_files: int
    max_file_bytes: int


@dataclass(frozen=True, kw_only=True)
class CommitSource:
    """Who commits."""

    execution: str = ""
    """Uid of the execution, or empty."""
    digest: str = ""
    """Digest of the files that the execution sent."""
    restored: int | None = None


def merge(base: Files, mine: Files, head: Files) -> Files:
    """Return the files of `mine`, with the changes from `base` to `head`. Raises FilesRefused (CONFLICT)."""
    merged: list[VersionFile] = []
    conflicts: list[str] = []
    for path in {**base, **mine, **head}:
        old, own, other = base.get(path), mine.get(path), head.get(path)
        if _state(own) == _state(old):
            chosen = other
        elif _state(other) in (_state(old), _state(own)):
            chosen = own
        else:
            conflicts.append(path)
            continue
        if chosen is not None:
            merged.append(chosen)
    if conflicts:
        raise _build_conflict(sorted(conflicts))
    try:
        return index_files(merged)
    except FilesRefused as error:
        raise FilesRefused(FilesReason.CONFLICT, f"others changed the workspace meanwhile: {error}") from None


def _build_conflict(paths: list[str]) -> FilesRefused:
    named = ", ".join(repr(path[:100]) for path in paths[:MAX_NAMED])
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return FilesRefused(FilesReason.CONFLICT, f"others changed the same files meanwhile: {named}{more}")


def delete_paths(files: Files, paths: Iterable[str]) -> Files:
    """Return files without those at or below paths. Takes linear time, whatever the number of paths."""
    doomed = {path.rstrip("/") for path in paths}
    return {path: entry for path, entry in files.items() if doomed.isdisjoint(_list_parents(path))} if doomed else files


def _list_parents(path: str) -> Iterator[str]:
    """Yield a path and those of its folders."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def check_limits(files: Files, head: Manifest, limits: CommitLimits) -> None:
    """Raise FilesRefused (TOO_LARGE) if a version has too much, unless it has less than the one before."""
    size = sum(entry.size for entry in files.values())
    if size > limits.max_bytes and size >= head.total_bytes:
        raise build_too_large(f"the files have {size} bytes, allowed are {limits.max_bytes}")
    if len(files) > limits.max_files and len(files) >= len(head.files):
        raise build_too_large(f"there are {len(files)} files, allowed are {limits.max_files}")
    for path, entry in files.items():
        if entry.size > limits.max_file_bytes and head.files.get(path) != entry:
            raise build_too_large(f"file {path[:100]!r} has {entry.size} bytes, allowed are {limits.max_file_bytes}")
    check_path_bytes(sum(map(count_path_bytes, files)))


def count_path_bytes(path: str) -> int:
    """Return the bytes of a path in UTF-8."""
    return len(path) if path.isascii() else len(path.encode())


def check_path_bytes(size: int) -> None:
    """Raise FilesRefused (TOO_LARGE) if the paths of a version have too many bytes."""
    if size > MAX_PATHS_BYTES:
        raise build_too_large(f"the paths have more than {MAX_PATHS_BYTES} bytes in all")


def locate(files: Files, *sources: Mapping[str, Location]) -> dict[str, Location]:
    """Return where the contents of files are. Raises FilesRefused (MISSING) if some are nowhere."""
    found: dict[str, Location] = {}
    missing: dict[str, None] = {}
    for entry in files.values():
        if not entry.size or entry.sha256 in found:
            continue
        location = next((source[entry.sha256] for source in sources if entry.sha256 in source), None)
        if location is None:
            missing[entry.sha256] = None
        elif location.size != entry.size:
            raise build_invalid(f"size: the content of {entry.path[:80]!r} has {location.size} bytes")
        else:
            found[entry.sha256] = location
    if missing:
        raise FilesRefused(
            FilesReason.MISSING,
            f"{len(missing)} contents are not stored: upload them and repeat the commit",
            missing=list(missing)[:MAX_MISSING],
        )
    return found


def build_manifest(
    head: Manifest, files: Files, contents: Mapping[str, Location], source: CommitSource, *, moment: datetime
) -> Manifest:
    """Return the version after `head`."""
    summary = VersionSummary(
        version=head.version + 1,
        created_at=moment,
        files=len(files),
        bytes=sum(entry.size for entry in files.values()),
        changed_files=count_changes(head.files, files),
        execution=source.execution,
        digest=source.digest,
        restored=source.restored,
        packs=count_bytes(contents),
    )
    return Manifest(summary=summary, files=files, contents=contents)


def count_changes(old: Files, new: Files) -> int:
    """Return how many files were added, changed or removed."""
    kept = sum(_state(old.get(path)) == entry.state for path, entry in new.items())
    common = sum(path in old for path in new)
    return len(old) + len(new) - common - kept


def build_result(id: str, before: Manifest, after: Manifest, *, base: int, merged: bool) -> CommitResult:
    """Return the answer to a commit to the workspace with this id."""
    return CommitResult(
        version=after.version,
        base=base,
        changed_files=after.summary.changed_files if after is not before else 0,
        files=len(after.files),
        bytes=after.total_bytes,
        etag=build_tag(id, after.version),
        merged=merged,
    )


def _state(entry: VersionFile | None) -> tuple[str, int] | None:
    return None if entry is None else entry.state
