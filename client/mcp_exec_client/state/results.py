"""Typed results about what lasts. Fields that only a newer gateway has are ignored."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from pydantic.alias_generators import to_camel

from mcp_exec_api.meta import Condition, MicroTime
from mcp_exec_client.errors import McpExecError, UnexpectedResponse

MAX_READ_BYTES: Final = 64 * 1024 * 1024
"""Most bytes that are read into memory, unless the caller allows more."""
_UNSAFE: Final = re.compile(r"[^\w.@+= -]+")
_MAX_NAME: Final = 120

Content = bytes
"""Bytes, of which the field `bytes` hides the name."""
Opener = Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]
"""Opens a download: a context with the bytes in parts."""


class StateResult(BaseModel):
    """Base of the results: camelCase in responses, snake_case in Python."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, use_attribute_docstrings=True
    )


class ExecutionArtifact(StateResult):
    """A file, figure or table that an execution produced."""

    id: str
    """Id of the artifact within its execution."""
    name: str
    """Name of the artifact, which its code chose."""
    media_type: str = "application/octet-stream"
    """Media type, such as `image/png`."""
    bytes: int = 0
    """Size."""
    sha256: str = ""
    """Digest of the bytes."""
    title: str | None = None
    """Title that the code gave it."""
    preview: str | None = None
    """What it shows as a short text, for a model."""
    url: str | None = None
    """Link that needs no key until it expires; only artifacts of a list have one."""
    expires_at: MicroTime | None = None
    """Time from which the link is refused."""
    _open: Opener | None = PrivateAttr(default=None)

    def attach(self, opener: Opener) -> None:
        """Set how the bytes are read; the client that received the artifact does it."""
        self._open = opener

    async def read(self, *, max_bytes: int = MAX_READ_BYTES) -> "Content":
        """Return the artifact's bytes. Raises UnexpectedResponse if there are more than `max_bytes`."""
        content = bytearray()
        async with self._opened() as parts:
            async for part in parts:
                content += part
                if len(content) > max_bytes:
                    raise UnexpectedResponse(f"artifact {self.name!r} has more than {max_bytes} bytes")
        self._check(hashlib.sha256(content).hexdigest())
        return Content(content)

    async def save(self, path: str | Path | None = None) -> Path:
        """Write the artifact to a file, or by its name into a folder, and return the file's path.

        The code chose the name, so only its last part is used, without characters that could mean something.
        """
        target = Path.cwd() if path is None else Path(path)
        if target.is_dir():
            target /= safe_name(self.name, default=f"artifact-{self.id}")
        async with self._opened() as parts:
            await write_file(target, parts, check=self._check)
        return target

    def _opened(self) -> AbstractAsyncContextManager[AsyncIterator["Content"]]:
        if self._open is None:
            raise McpExecError(f"artifact {self.name!r} does not come from a client, so it can't be read")
        return self._open()

    def _check(self, digest: str) -> None:
        if self.sha256 and digest != self.sha256:
            raise UnexpectedResponse(f"artifact {self.name!r} has the digest {digest}, and not {self.sha256}")


class ArtifactItems(StateResult):
    """Artifacts in a response."""

    items: list[ExecutionArtifact]


class KeptSession(StateResult):
    """A session, as it was at the time of the response."""

    name: str
    """Name of the session, as executions give it."""
    namespace: str
    pool: str
    caller: str | None = None
    """Owner, as a label value."""
    user: str | None = None
    """User on whose behalf the session's code runs."""
    description: str | None = None
    phase: str
    """Pending: has no pod yet. Ready: runs nothing. Busy: runs an execution. Lost, Ended: variables and files are
    gone."""
    reason: str = ""
    """Reason for the phase."""
    executions: int = 0
    """Executions that the session has run since its pod started."""
    queued: int = 0
    """Executions that wait for the session."""
    memory_bytes: int | None = None
    """Memory of the session's sandbox after its last execution."""
    idle_timeout_seconds: int | None = None
    """Seconds without an execution after which the session ends."""
    max_age_seconds: int | None = None
    """Seconds after which the session ends in any case."""
    max_queued: int | None = None
    """Most executions that may wait for the session."""
    resets: int = 0
    """How often the session was reset."""
    pod_name: str | None = None
    node_name: str | None = None
    created_at: MicroTime | None = None
    started_at: MicroTime | None = None
    """Time at which the session got its pod."""
    last_used_at: MicroTime | None = None
    expires_at: MicroTime | None = None
    """Time at which the session ends if nothing uses it."""
    ended_at: MicroTime | None = None
    """Time at which the session was lost or ended."""
    conditions: list[Condition] = Field(default_factory=list)


class SessionItems(StateResult):
    """Sessions in a response."""

    items: list[KeptSession]


class StoredWorkspace(StateResult):
    """A workspace, as it was at the time of the response."""

    name: str
    id: str
    """Identity: another workspace of the same name, made later, has another id."""
    description: str = ""
    version: int
    """Newest version; 0 if nothing was saved yet."""
    etag: str = ""
    """Tag of the newest version, for `if_match` of a write."""
    files: int
    bytes: int
    """Bytes of the newest version's files."""
    max_bytes: int
    max_files: int
    ttl_seconds: int
    """Seconds after its last use at which the workspace is deleted."""
    created_at: MicroTime
    used_at: MicroTime
    expires_at: MicroTime
    """Time at which the workspace may be deleted unless it is used."""


class StoredWorkspaces(StateResult):
    """The caller's workspaces, and what they take."""

    items: list[StoredWorkspace]
    stored_bytes: int
    """Bytes that workspaces and artifacts take in the store, older versions included."""
    max_stored_bytes: int
    max_workspaces: int


class StoredFile(StateResult):
    """A file of a workspace."""

    path: str
    size: int
    sha256: str
    mode: int = 0o644
    """Permissions: 0o644, or 0o755 if it can be executed."""


class StoredFiles(StateResult):
    """A page of the files of a workspace."""

    version: int
    etag: str = ""
    """Tag of the version, for `if_match` of a write."""
    items: list[StoredFile]
    next: str | None = None
    """Last path of the page if there are more."""


class StoredVersion(StateResult):
    """A version of a workspace."""

    version: int
    created_at: MicroTime
    files: int
    bytes: int
    changed_files: int
    execution: str = ""
    """UID of the execution that saved it; empty if a request did."""
    restored: int | None = None
    """Version whose files it has, if it restored one."""


class StoredVersions(StateResult):
    """The versions of a workspace."""

    items: list[StoredVersion]


class SavedVersion(StateResult):
    """What a request saved."""

    version: int
    """The version that has the files now."""
    base: int
    """The version before it."""
    changed_files: int
    files: int
    bytes: int
    etag: str = ""
    """Tag of the version, for `if_match` of a later write."""
    merged: bool = False
    """Whether others saved other files in between, which are kept."""


class SyncResult(StateResult):
    """What a synchronization did."""

    uploaded: tuple[str, ...] = ()
    """Paths of the files that were sent."""
    downloaded: tuple[str, ...] = ()
    """Paths of the files that were received."""
    deleted: tuple[str, ...] = ()
    """Paths of the files that were deleted."""
    unchanged: int = 0
    """Number of files that did not travel."""
    left_out: tuple[str, ...] = ()
    """Paths of the workspace's files that were not received, because a name in them is excluded."""
    version: int
    """Version of the workspace afterwards."""


def safe_name(name: str, *, default: str) -> str:
    """Return the last part of a name that code chose, as the name of a file that is no path and not hidden."""
    last = re.split(r"[/\\]", name)[-1]
    return _UNSAFE.sub("_", last)[-_MAX_NAME:].strip(" .") or default


async def write_file(target: Path, parts: AsyncIterator[bytes], *, check: Callable[[str], None]) -> None:
    """Write a file whole or not at all. `check` gets the digest and may raise an error. Raises OSError."""
    digest = hashlib.sha256()
    partial = target.with_name(f".{target.name}.part")
    try:
        with await asyncio.to_thread(partial.open, "wb") as file:
            async for part in parts:
                digest.update(part)
                await asyncio.to_thread(file.write, part)
        check(digest.hexdigest())
        await asyncio.to_thread(partial.replace, target)
    finally:
        partial.unlink(missing_ok=True)


def drop_unset(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


class SkillVersion(StateResult):
    """One version of a skill."""

    name: str
    """Name of the skill."""
    version: int
    """Version."""
    description: str = ""
    """What the skill does."""
    state: str = "Draft"
    """Draft, Approved or Deprecated."""
    import_line: str = Field(default="", alias="import")
    """Line with which code imports this version."""
    author: str | None = None
    """Caller who saved it."""
    user: str | None = None
    """User on whose behalf it was saved."""
    tools: list[str] = []
    """Tools that it calls."""
    tags: list[str] = []
    """Words by which searches find it."""
    parameters: dict[str, Any] | None = None
    """JSON Schema of its arguments."""
    digest: str = ""
    """Digest of the content, which an approval can name."""
    reviewed_by: str | None = None
    """Caller who decided last."""
    reviewed_at: MicroTime | None = None
    """Time of the last decision."""
    uses: int = 0
    """Executions that got it."""
    successes: int = 0
    """Those of them that succeeded."""
    last_used_at: MicroTime | None = None
    """End of the last execution that got it."""
    problem: str | None = None
    """Why nothing can use the version."""
    provenance: dict[str, Any] | None = None
    """Origin of the code."""
    code: str | None = None
    """Code, if one version was requested."""
    instructions: str | None = None
    """How to use it, if one version was requested."""


class SkillItems(StateResult):
    """Versions of skills."""

    items: list[SkillVersion]
    """The versions."""
