"""Contents that executions have uploaded and not committed yet."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_broker.files.requests import FilesRefused, build_too_large
from mcp_exec_broker.files.workspace.manifest import Location
from mcp_exec_common.broker.files import FilesReason

PENDING_SECONDS: Final = 1800.0
"""Seconds in which an upload must be committed. The collector removes contents later, so a commit never loses any."""
_MAX_CONTENTS: Final = 200_000
"""Contents of all executions, of about 300 bytes each. Those of one namespace have half of the places."""
_KEEP_CLOSED: Final = 50_000


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
