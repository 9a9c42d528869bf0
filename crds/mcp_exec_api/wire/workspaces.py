"""Workspaces, their files and versions, as clients, gateway and broker exchange them."""

from typing import Annotated, Final

from pydantic import Field

from mcp_exec_api.files import WorkspaceName
from mcp_exec_api.meta import MicroTime, Model

MAX_FILES: Final = 50_000
"""Most files that any workspace may have, whatever its quota."""
KEEP_VERSIONS: Final = 10
"""Versions of a workspace that can be read and restored."""
MAX_PAGE: Final = 1000
"""Most files in one page of a listing."""
MAX_LISTED_WORKSPACES: Final = 1000
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 in hexadecimal digits."""
Count = Annotated[int, Field(ge=0, le=2**53)]


class WorkspaceSettings(Model):
    """Settings of a workspace. A setting that is not given has the installation's default."""

    description: Annotated[str, Field(max_length=200)] = ""
    """What the workspace is for."""
    max_bytes: Annotated[int, Field(ge=1, le=2**50)] | None = None
    """Most bytes of its files, at most the installation's limit."""
    max_files: Annotated[int, Field(ge=1, le=MAX_FILES)] | None = None
    """Most files, at most the installation's limit."""
    ttl_seconds: Annotated[int, Field(ge=3600, le=10 * 365 * 24 * 3600)] | None = None
    """Seconds from its last use to its deletion."""


class Workspace(Model):
    """A workspace."""

    name: WorkspaceName
    """Name, among those of the owner."""
    id: str
    """Identity: another workspace of the same name, made later, has another id."""
    description: str
    """What the workspace is for."""
    version: Count
    """Newest version; 0 if nothing was committed yet."""
    etag: str = ""
    """Tag of the newest version, for the header If-Match of a write."""
    files: Count
    """Files of the newest version."""
    bytes: Count
    """Bytes of the newest version's files."""
    max_bytes: Count
    """Most bytes of its files."""
    max_files: Count
    """Most files."""
    ttl_seconds: Count
    """Seconds from its last use to its deletion."""
    created_at: MicroTime
    """When it was created."""
    used_at: MicroTime
    """When it was last read by an execution, written or changed; up to five minutes too early."""
    expires_at: MicroTime
    """When it may be deleted unless it is used."""


class WorkspaceList(Model):
    """Workspaces of an owner."""

    items: Annotated[list[Workspace], Field(max_length=MAX_LISTED_WORKSPACES)]
    """Workspaces by name."""
    stored_bytes: Count
    """Bytes that the owner's workspaces and artifacts take in the store, older versions included."""
    max_stored_bytes: Count
    """Most bytes that they may take."""
    max_workspaces: Count
    """Most workspaces of the owner."""


class WorkspaceFile(Model):
    """One file of a version."""

    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Path, relative to the workspace."""
    size: Count
    """Size in bytes."""
    sha256: Digest
    """Digest of its content."""
    mode: Annotated[int, Field(json_schema_extra={"enum": [0o644, 0o755]})] = 0o644
    """Permissions: 420 (0o644), or 493 (0o755) if it can be executed."""


class WorkspaceFileList(Model):
    """A page of the files of a version."""

    version: Count
    """The version."""
    etag: str = ""
    """Tag of the version, for the header If-Match of a write."""
    items: Annotated[list[WorkspaceFile], Field(max_length=MAX_PAGE)]
    """Files by path."""
    next: str | None = None
    """Last path of this page if there are more: ask for the files after it."""


class WorkspaceVersion(Model):
    """A version of a workspace."""

    version: Count
    """Number of the version; the first is 1."""
    created_at: MicroTime
    """When it was committed."""
    files: Count
    """Number of files."""
    bytes: Count
    """Bytes of all files."""
    changed_files: Count
    """Files that were added, changed or removed."""
    execution: str = ""
    """Uid of the execution that committed it; empty if a request did."""
    restored: Count | None = None
    """Version whose files it has, if it restored one."""


class WorkspaceVersionList(Model):
    """Versions of a workspace that can be read and restored."""

    items: Annotated[list[WorkspaceVersion], Field(max_length=KEEP_VERSIONS)]
    """Versions, newest first."""


class CommitResult(Model):
    """A version that was committed."""

    version: Count
    """The version that has the files now. It is the base if nothing changed."""
    base: Count
    """Version before it."""
    changed_files: Count
    """Files that were added, changed or removed."""
    files: Count
    """Files of the version."""
    bytes: Count
    """Bytes of the version's files."""
    etag: str = ""
    """Tag of the version, for the header If-Match of a later write."""
    merged: bool = False
    """Whether others committed in between, and their changes, of other files, are kept."""


class RestoreRequest(Model):
    """Which version to restore."""

    version: Annotated[int, Field(ge=1)]
    """A version that the list of versions has."""
