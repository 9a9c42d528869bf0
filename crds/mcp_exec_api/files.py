"""Files that outlive their execution, its workspace and its artifacts, and the owner of what outlives a run."""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final

from pydantic import Field

from mcp_exec_api.constants import ACCOUNT_PREFIX
from mcp_exec_api.meta import Model, OpenEnum
from mcp_exec_api.reasons.execution import Reason

MAX_ARTIFACTS: Final = 50
MAX_ARTIFACT_NAME: Final = 200
MAX_TITLE: Final = 200
MAX_PREVIEW: Final = 2000
MEDIA_TYPE: Final = r"^[a-z0-9.+-]{1,63}/[a-z0-9.+-]{1,63}$"


class Artifact(Model):
    """One file that the run produced by `show()` or in the folder `artifacts`."""

    id: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Id of the artifact within the execution, for `GET /v1/executions/NAME/artifacts/ID`."""
    name: Annotated[str, Field(min_length=1, max_length=MAX_ARTIFACT_NAME)]
    """File name, for example `sales.png`; a path below the folder `artifacts`."""
    media_type: Annotated[str, Field(max_length=127, pattern=MEDIA_TYPE)] = "application/octet-stream"
    """Media type that the code gave or the name suggests. Nobody has checked the bytes."""
    bytes: Annotated[int, Field(ge=0)]
    """Size in bytes."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the bytes, in hexadecimal digits."""
    title: Annotated[str, Field(max_length=MAX_TITLE)] = ""
    """Title that the code gave."""
    preview: Annotated[str, Field(max_length=MAX_PREVIEW)] = ""
    """Beginning of the content as text, for a model that can't see the bytes."""


MAX_NAME_CHARACTERS: Final = 50
MAX_MESSAGE_CHARACTERS: Final = 1000

WorkspaceName = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]
"""Name of a workspace, unique for its owner."""


class WorkspaceMode(OpenEnum):
    """Use of a workspace by an execution."""

    WRITE = "Write"
    """Its changes are saved as a new version. One execution at a time has a workspace so."""
    READ = "Read"
    """It has a copy of the newest version, and its changes are dropped."""


class WorkspaceRef(Model):
    """Reference to a workspace of the execution's owner: namespace, caller and user."""

    name: WorkspaceName
    """Name of the workspace: lower-case letters, digits and `-`, at most 50. The first execution that writes to a
    workspace creates it."""
    mode: WorkspaceMode = WorkspaceMode.WRITE
    """Write: changes are saved after the run, and executions that write to the same workspace run one after the other.
    Read: the run has a copy, at once, and its changes are dropped."""


class WorkspaceStatus(Model):
    """Versions of a workspace that a run read and saved."""

    base: Annotated[int | None, Field(ge=0)] = None
    """Version that the run began with; 0 if the workspace was empty."""
    version: Annotated[int | None, Field(ge=0)] = None
    """Newest version after the run: `base` if nothing changed. Not set if nothing was saved, because the run only read,
    did not come to its own end, or could not save."""
    changed_files: Annotated[int | None, Field(ge=0)] = None
    """Number of files that the run added, changed or removed."""
    bytes: Annotated[int | None, Field(ge=0)] = None
    """Bytes of all files of `version`."""
    left_out: Annotated[int | None, Field(ge=0)] = None
    """Number of entries that were not saved, because a workspace has only regular files with plain names. The end of
    stderr names the first ones."""
    reason: Reason = Reason.NONE
    """Why the changes were not saved: WorkspaceConflict, WorkspaceTooLarge or WorkspaceUnavailable. Empty if they
    were, or if there were none to save."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE_CHARACTERS)] = ""
    """Why the changes were not saved, as a sentence for people."""


_DIGEST_CHARACTERS: Final = 32
_SUFFIX_CHARACTERS: Final = 12
"""With a name of 50 characters they fill a label. Fewer could be found by trying users."""
_QUALIFIED: Final = re.compile(rf"-[0-9a-f]{{{_SUFFIX_CHARACTERS}}}\Z")


NOBODYS: Final = (
    "nothing proves who created this execution, so it owns nothing that lasts; create it through the gateway, or where "
    "admission policies record its account (docs/platform/identities.md#accounts-of-kubernetes)"
)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whoever may use a thing again: nobody else ever does, whatever they name it."""

    namespace: str
    caller: str = ""
    """Caller, as authenticated by the gateway, or `k8s/USERNAME` for an account that created the object through the
    Kubernetes API. A name without a proof is no caller. Empty: nobody, who owns nothing and equals nobody."""
    user: str = ""
    """User on whose behalf the code runs, as in `spec.user`."""

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits that stand for the owner in labels, paths and jobs. It is no secret."""
        text = json.dumps([self.namespace, self.caller, self.user], separators=(",", ":"))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]

    @cached_property
    def caller_digest(self) -> str:
        """Digest of the caller, whatever user it names: what all of its owners have in common."""
        return Owner(namespace=self.namespace, caller=self.caller).digest

    @property
    def is_nobody(self) -> bool:
        """Whether no caller is proven: then nothing is kept for a later execution, and nothing kept is used."""
        return not self.caller

    def same_as(self, other: "Owner") -> bool:
        """Return whether both are the same owner. Nobody is not the same as nobody."""
        return not self.is_nobody and self == other

    def qualify(self, name: str) -> str:
        """Return the object's name for what this owner calls `name`: owners in one namespace never collide.

        Accounts that use the Kubernetes API without a user name objects directly, as they do all objects there.
        """
        return f"{name}-{self.digest[:_SUFFIX_CHARACTERS]}" if self._is_qualified else name

    def may_name(self, name: str) -> bool:
        """Return whether this owner's `name` can't be the qualified name of another owner."""
        return self._is_qualified or _QUALIFIED.search(name) is None

    @property
    def _is_qualified(self) -> bool:
        return bool(self.user) or not (self.is_nobody or self.caller.startswith(ACCOUNT_PREFIX))
