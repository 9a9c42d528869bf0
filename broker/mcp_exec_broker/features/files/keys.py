"""Keys of the store's objects.

    workspaces/NAMESPACE/OWNER/NAME/NUMBER       state of a workspace; the highest number counts
    data/NAMESPACE/OWNER/ID/versions/NUMBER      list of files of a version
    data/NAMESPACE/OWNER/ID/packs/PACK           contents, one after the other
    artifacts/NAMESPACE/OWNER/EXECUTION/ID       an artifact

Every key below the owner's folders is built from checked names, so that no request reaches those of another owner.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.files import MAX_NAME_CHARACTERS
from mcp_exec_broker.features.files.requests import build_invalid

WORKSPACES: Final = "workspaces"
DATA: Final = "data"
ARTIFACTS: Final = "artifacts"

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OWNER: Final = re.compile(r"[0-9a-f]{32}")
_NAME: Final = re.compile(rf"[a-z0-9]([-a-z0-9]{{0,{MAX_NAME_CHARACTERS - 2}}}[a-z0-9])?")
_EXECUTION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_ARTIFACT: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, order=True)
class OwnerSpace:
    """The objects of one owner. Raises FilesRefused (INVALID) if a name is malformed."""

    namespace: str
    owner: str
    """Digest of the owner."""
    caller: str = field(default="", compare=False)
    """Digest of the owner's caller, which may be the caller of other owners, too. Empty if it does not matter."""

    def __post_init__(self) -> None:
        if not _NAMESPACE.fullmatch(self.namespace):
            raise build_invalid("namespace: must be the name of a namespace")
        if not _OWNER.fullmatch(self.owner):
            raise build_invalid("owner: must be 32 hexadecimal digits")
        if self.caller and not _OWNER.fullmatch(self.caller):
            raise build_invalid("caller: must be 32 hexadecimal digits")

    @property
    def account(self) -> str:
        """Key that counts requests of gateway and operator: a caller chooses its users freely."""
        return f"{self.namespace}/{self.caller or self.owner}"

    @property
    def holder(self) -> str:
        """Whose requests they are, for messages."""
        return "the caller"

    def states(self, name: str | None = None) -> str:
        """Return the folder of a workspace's states, or that of all workspaces."""
        return f"{WORKSPACES}/{self.namespace}/{self.owner}" + ("" if name is None else f"/{check_name(name)}")

    def data(self, id: str | None = None) -> str:
        """Return the folder of a workspace's data, or that of all workspaces."""
        return f"{DATA}/{self.namespace}/{self.owner}" + ("" if id is None else f"/{id}")

    def versions(self, id: str) -> str:
        """Return the folder of a workspace's versions."""
        return f"{self.data(id)}/versions"

    def packs(self, id: str) -> str:
        """Return the folder of a workspace's contents."""
        return f"{self.data(id)}/packs"

    def artifacts(self, execution: str | None = None) -> str:
        """Return the folder of an execution's artifacts, or that of all."""
        folder = f"{ARTIFACTS}/{self.namespace}/{self.owner}"
        if execution is None:
            return folder
        if not _EXECUTION.fullmatch(execution):
            raise build_invalid("execution: must be the uid of an execution")
        return f"{folder}/{execution}"

    def artifact(self, execution: str, id: str) -> str:
        """Return the key of an artifact."""
        if not _ARTIFACT.fullmatch(id):
            raise build_invalid("artifact: must be 16 hexadecimal digits")
        return f"{self.artifacts(execution)}/{id}"


def check_name(name: str) -> str:
    """Return the name of a workspace. Raises FilesRefused."""
    if not _NAME.fullmatch(name):
        raise build_invalid(
            f"workspace: a name has at most {MAX_NAME_CHARACTERS} lower-case letters, digits and `-`, and neither "
            f"begins nor ends with `-`; this one is {name[:60]!r}"
        )
    return name


def number_key(folder: str, number: int) -> str:
    """Return the key of a numbered object."""
    return f"{folder}/{number:010d}"


def split_key(key: str) -> tuple[str, str]:
    """Return folder and last name of a key."""
    folder, _, name = key.rpartition("/")
    return folder, name
