"""Workspaces and artifacts, as sandboxes, gateway and operator exchange them with the broker.

A workspace is a list of versions; each is the complete list of its files. Contents travel by their SHA-256, in frames:
`SHA256 SIZE`, a line break, and the bytes. Paths and frames are checked by `mcp_exec_tools.workspace_files`.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from mcp_exec_api.files import WorkspaceMode, WorkspaceName
from mcp_exec_api.meta import Model
from mcp_exec_api.wire.workspaces import MAX_FILES, Count, Digest

MAX_LINE_BYTES: Final = 8 * 1024
"""Longest line of a manifest or a commit, and longest head of an artifact."""
MAX_DIGESTS: Final = 20_000
"""Most contents that one request may name."""
UPLOAD_BYTES: Final = 32 * 1024 * 1024
"""A sender should begin another upload after so many bytes of frames, so that a lost connection costs little. One frame
may be larger."""
MAX_UPLOAD_SECONDS: Final = 1500
"""Longest upload of a file, an archive or a change set to a workspace. The broker may remove contents that have no
version half an hour after they were stored."""
MAX_DELETED: Final = 50_000
"""Most paths that a change set may delete."""
MAX_CHANGE_HEAD_BYTES: Final = 4 * 1024 * 1024
"""Longest first line of a change set."""
CALLER_LIMIT: Final = "maxWorkspaces"
"""Query parameter of requests that may create a workspace: how many the owner's caller may have, for all its users."""

MANIFEST_PATH: Final = "/v1/files/manifest"
"""GET: the workspace as JSON lines: a `ManifestHead`, then a `WorkspaceFile` a line. The ETag is `"ID-VERSION"`; with a
matching If-None-Match the answer is 304."""
BLOBS_PATH: Final = "/v1/files/blobs"
"""POST: frames of new contents. They are stored once the answer, an `UploadResult`, is there."""
MISSING_PATH: Final = "/v1/files/blobs/missing"
"""POST `{"sha256": [...]}`: `{"missing": [...]}`, the contents that must be uploaded before a commit."""
CONTENTS_PATH: Final = "/v1/files/blobs/get"
"""POST `{"version": N, "sha256": [...]}`: frames of contents of a version, in any order, each once."""
COMMIT_PATH: Final = "/v1/files/commit"
"""POST: JSON lines: a `CommitHead`, then a `WorkspaceFile` a line, all files of the new version. The answer is a
`CommitResult`. A repetition of the same commit has the same answer."""
ARTIFACTS_PATH: Final = "/v1/files/artifacts"
"""POST: a line of JSON, an `ArtifactHead`, and the content. The answer is an `ArtifactResult`."""

OwnerDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
ExecutionUid = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")]


class FilesReason(StrEnum):
    """Cause of a refused request on files, with the HTTP status that sandboxes get.

    The body of the answer is `{"reason", "message"}` for sandboxes, and problem details for gateway and operator.
    """

    INVALID = "Invalid"
    """400. The request is malformed, or a path is not allowed."""
    NOT_AUTHENTICATED = "NotAuthenticated"
    """401. The grant is missing, not valid or expired."""
    NOT_ALLOWED = "NotAllowed"
    """403. The grant does not contain what was asked for."""
    DISABLED = "Disabled"
    """404. This installation stores no files."""
    NO_WORKSPACE = "NoWorkspace"
    """404. The owner has no such workspace."""
    NO_VERSION = "NoVersion"
    """404. The workspace does not have this version, or no longer."""
    NO_FILE = "NoFile"
    """404. The version does not have this file or content."""
    NO_ARTIFACT = "NoArtifact"
    """404. There is no such artifact, or no longer."""
    OUTDATED = "Outdated"
    """412. The precondition of the request does not hold: others changed the file or the workspace. `version` is the
    current one."""
    CONFLICT = "Conflict"
    """409. The same files were changed by another writer since the base version."""
    MISSING = "MissingContents"
    """409. The commit names contents that are not stored. `missing` has up to 1,000 of them: upload them and repeat."""
    TOO_LARGE = "TooLarge"
    """413. A quota or limit of bytes, files, workspaces or artifacts is exceeded."""
    BUSY = "Busy"
    """429. Too much is in progress. Repeat later."""
    UNAVAILABLE = "Unavailable"
    """503. The store cannot be read or written. Repeat later."""


class WorkspaceAccess(Model):
    """Right of an execution to a workspace."""

    name: WorkspaceName
    """Name of the workspace, among those of the owner."""
    mode: WorkspaceMode
    """Whether the execution may commit."""
    version: Annotated[int, Field(ge=1)] | None = None
    """Version to read. None means the newest at the time of the request."""
    max_bytes: Count | None = None
    """Most bytes of a commit's files, if less than the workspace's quota."""
    max_files: Count | None = None
    """Most files of a commit, if less than the workspace's quota."""


class ArtifactAllowance(Model):
    """Right of an execution to store artifacts."""

    count: Annotated[int, Field(ge=0, le=1000)] = 32
    """Most artifacts."""
    total_bytes: Count = 64 * 1024 * 1024
    """Most bytes of all artifacts."""


class SignedGrant(Model):
    """Rights in a token that the broker accepts."""

    audience: ClassVar[str]
    """The audience of its token, of this kind alone."""
    expires: int
    """Expiry in seconds since 1970."""


class SandboxGrant(SignedGrant):
    """Rights of one execution, used from its sandbox. The broker adds to `expires` what calls wait for approvals."""

    execution: ExecutionUid
    """Uid of the execution."""
    pod_address: str
    """IP address of the sandbox, the only one that may use them."""
    replica: str
    """Uid of the broker's pod, the only one that accepts them: it alone counts calls and keeps uploads."""

    @property
    def account(self) -> str:
        """Key of the account for what is done with them, and its memory: the execution."""
        return self.execution

    @property
    def holder(self) -> str:
        """Who has the grant, for messages."""
        return "the execution"


class FilesGrant(SandboxGrant):
    """Rights of one execution to files of its owner. The supervisor keeps it; the code never gets it."""

    audience: ClassVar[str] = "mcp-exec-broker-files"
    namespace: str
    """Namespace of the execution."""
    owner: OwnerDigest
    """Digest of the execution's owner."""
    caller: OwnerDigest
    """Digest of the owner's caller, for whatever user it runs code."""
    workspace: WorkspaceAccess | None = None
    """Its workspace, if it has one."""
    artifacts: ArtifactAllowance | None = None
    """Its artifacts, if it may store any."""


class ManifestHead(Model):
    """First line of a manifest."""

    id: str
    """Identity of the workspace: another one of the same name, made later, has another id."""
    version: Count
    """The version; 0 if nothing was committed yet."""
    files: Count
    """Number of files, which is the number of lines that follow."""
    bytes: Count
    """Bytes of all files."""
    max_bytes: Count
    """Most bytes that a commit may have."""
    max_files: Count
    """Most files that a commit may have."""
    max_file_bytes: Count
    """Most bytes of one file."""


class CommitHead(Model):
    """First line of a commit."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Id of the workspace, from the manifest."""
    base: Count
    """Version that the files were made from, as the manifest has it."""
    files: Annotated[int, Field(ge=0, le=MAX_FILES)]
    """Number of files, which is the number of lines that follow."""


class ChangeHead(Model):
    """First line of a change set. An archive of the files to write follows it."""

    delete: Annotated[list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=MAX_DELETED)] = []
    """Paths of files, or of folders with all their files, to delete. Those that do not exist are ignored."""


class UploadResult(Model):
    """Contents that are stored now."""

    contents: Count
    """Number of frames."""
    bytes: Count
    """Bytes of contents."""


class ArtifactHead(Model):
    """First line of the upload of an artifact."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r'^[^\x00-\x1f\x7f-\x9f/\\"\u2028\u2029]+$')]
    """File name for people."""
    media_type: Annotated[str, Field(max_length=127, pattern=r"^[a-z0-9.+-]{1,63}/[a-z0-9.+-]{1,63}$")]
    """Media type, for example `image/png`."""
    size: Count
    """Size in bytes."""
    sha256: Digest
    """Digest of the content."""


class ArtifactResult(Model):
    """An artifact that is stored now."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    """Id, unique in the execution. The same name and content have the same id."""


class WorkspaceCount(Model):
    """How many workspaces a caller has."""

    count: Count
    """Workspaces of all users of the caller."""


def build_tag(id: str, version: int) -> str:
    """Return the ETag of a version of a workspace, without its quotation marks."""
    return f"{id}-{version}"
