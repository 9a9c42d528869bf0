"""Commits: how a new version is made of what a writer sends and of the versions before. No I/O happens here.

A write may have preconditions: what the writer has seen must still be there (RFC 9110, If-Match and If-None-Match).
Contents that executions have uploaded are pending until their commit.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.wire.workspaces import CommitResult
from mcp_exec_broker.features.files.requests import FilesRefused, build_invalid, build_too_large
from mcp_exec_broker.features.files.usage import MAX_PATHS_BYTES
from mcp_exec_broker.features.files.workspace.manifest import (
    Files,
    Location,
    Manifest,
    VersionFile,
    VersionSummary,
    index_files,
)
from mcp_exec_broker.features.files.workspace.packs import count_bytes
from mcp_exec_common.broker.files import FilesReason, build_tag

MAX_NAMED: Final = 10
"""Paths that a message names."""
MAX_MISSING: Final = 1000
"""Missing contents that an answer names."""

Change = Callable[[Files], Files]
"""Returns the files of the next version, from those of the newest."""
_MAX_HEADER: Final = 2000
_MAX_TAGS: Final = 20
_TAG: Final = re.compile(r'\s*(W/)?"([!#-~]{0,100})"\s*')
_ANY: Final = "*"
PENDING_SECONDS: Final = 1800.0
"""Maximum seconds from an upload to its commit. The collector removes contents later, so a commit never loses any."""
_MAX_CONTENTS: Final = 200_000
"""Contents of all executions, of about 300 bytes each. Those of one namespace have half of the places."""
_KEEP_CLOSED: Final = 50_000


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


@dataclass(frozen=True, kw_only=True)
class Precondition:
    """What must hold of a workspace's newest version, or of one of its files, when a write takes place."""

    tags: frozenset[str] | None = None
    """Tags of a version, or digests of the file. One must be the current one. None: there is no condition."""
    must_be_new: bool = False
    """Whether the file must not exist yet, or without a path no version of the workspace."""

    def check(self, id: str, head: Manifest, path: str | None = None, *, changes: bool) -> None:
        """Raise FilesRefused (OUTDATED) if a workspace, or the file at a path, is not as expected.

        A write that `changes` nothing may repeat one whose answer was lost, so its tags are not checked. What must be
        new has one writer only, whatever the others write.
        """
        entry = None if path is None else head.files.get(path)
        exists = head.version > 0 if path is None else entry is not None
        what = "the workspace" if path is None else f"file {path[:100]!r}"
        if self.must_be_new and exists:
            raise _outdated(f"If-None-Match: {what} exists, in version {head.version}", head.version)
        if self.tags is None or not changes or (_ANY in self.tags and exists):
            return
        current = {build_tag(id, head.version)} | ({entry.sha256} if entry is not None else set())
        if not current & self.tags:
            state = "has another tag" if exists else "does not exist"
            raise _outdated(f"If-Match: {what} {state}, in version {head.version}", head.version)

    def check_missing(self) -> None:
        """Raise FilesRefused (OUTDATED) if the workspace, which does not exist, must exist."""
        if self.tags is not None:
            raise _outdated("If-Match: the workspace does not exist", 0)


def parse_precondition(if_match: str | None, if_none_match: str | None) -> Precondition:
    """Return the precondition in the headers of a write. Raises FilesRefused (INVALID)."""
    if if_none_match is not None and if_none_match.strip() != _ANY:
        raise build_invalid("If-None-Match: a write allows * only, which means that the file must not exist")
    return Precondition(tags=None if if_match is None else _parse_tags(if_match), must_be_new=if_none_match is not None)


def _parse_tags(text: str) -> frozenset[str]:
    if text.strip() == _ANY:
        return frozenset({_ANY})
    parts = text.split(",") if len(text) <= _MAX_HEADER else []
    found = [_TAG.fullmatch(part) for part in parts]
    if not 0 < len(found) <= _MAX_TAGS or not all(found):
        raise build_invalid(
            f"If-Match: must be * or at most {_MAX_TAGS} ETags in quotation marks, and is {text[:80]!r}"
        )
    # a weak tag never matches
    return frozenset(match[2] for match in found if match is not None and match[1] is None)


def _outdated(message: str, version: int) -> FilesRefused:
    return FilesRefused(FilesReason.OUTDATED, f"{message}; read it again, and repeat the change", version=version)


@dataclass
class _Upload:
    namespace: str
    workspace: str
    """Id of the workspace that has the contents."""
    started: float
    contents: dict[str, Location] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class PendingUploads:
    """Uploads of executions, by their uids. A restart forgets them: the sandbox asks what is missing and repeats."""

    most: int = 20_000
    """Most contents of an execution: the files of a version."""
    clock: Callable[[], float] = monotonic
    _uploads: dict[str, _Upload] = field(default_factory=dict)
    _closed: dict[str, None] = field(default_factory=dict)
    """Executions that have ended, the oldest first."""

    def find(self, execution: str, workspace: str) -> Mapping[str, Location]:
        """Return the contents that an execution has uploaded to a workspace."""
        upload = self._uploads.get(execution)
        if upload is None or upload.workspace != workspace or self.clock() - upload.started > PENDING_SECONDS:
            return {}
        return upload.contents

    def add(
        self, execution: str, workspace: str, contents: Mapping[str, Location], *, namespace: str, started: float
    ) -> None:
        """Remember durable contents, whose upload began at `started`. Raises FilesRefused (BUSY, TOO_LARGE)."""
        self.check_open(execution)
        if not self.find(execution, workspace):
            self._uploads.pop(execution, None)
        own = self._uploads.get(execution)
        if len(contents.keys() | own.contents.keys() if own else contents) > self.most:
            raise build_too_large(f"at most {self.most} contents of an execution may wait for their commit")
        self._drop_expired()
        count = len(contents)
        if self.count() + count > _MAX_CONTENTS or self.count(namespace) + count > _MAX_CONTENTS // 2:
            raise FilesRefused(FilesReason.BUSY, "too many contents wait for their commits; repeat later")
        self._uploads.setdefault(execution, _Upload(namespace, workspace, started)).contents.update(contents)

    def count(self, namespace: str | None = None) -> int:
        """Return how many contents wait for their commits, of one namespace or of all."""
        return sum(len(upload.contents) for upload in self._uploads.values() if namespace in (None, upload.namespace))

    def drop(self, execution: str, contents: Iterable[str]) -> None:
        """Forget contents that were committed, or never will be."""
        upload = self._uploads.get(execution)
        if upload is not None:
            for sha256 in contents:
                upload.contents.pop(sha256, None)
            if not upload.contents:
                del self._uploads[execution]

    def check_open(self, execution: str) -> None:
        """Raise FilesRefused if the execution has ended."""
        if execution in self._closed:
            raise FilesRefused(FilesReason.NOT_ALLOWED, "the execution has ended")

    def close(self, execution: str) -> None:
        """Forget an execution that has ended, and refuse its requests."""
        self._uploads.pop(execution, None)
        self._closed[execution] = None
        if len(self._closed) > _KEEP_CLOSED:
            del self._closed[next(iter(self._closed))]

    def _drop_expired(self) -> None:
        now = self.clock()
        for execution in [uid for uid, upload in self._uploads.items() if now - upload.started > PENDING_SECONDS]:
            del self._uploads[execution]
