"""The field `files` of a job: where its files are kept, and what it may keep."""

import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from mcp_exec_sandbox.protocol import ARTIFACTS_FOLDER
from mcp_exec_sandbox.supervisor.json_object import InvalidRequest, check_fields

if TYPE_CHECKING:
    from mcp_exec_sandbox.supervisor.files.workspace import Signature, WorkspaceFolder


MAX_TOKEN_CHARACTERS = 16_384
MAX_COUNT = 1 << 53
_FIELDS = ("url", "token", "workspace", "maxArtifacts", "maxArtifactBytes")
_WORKSPACE_FIELDS = ("name", "mode")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class RequestedWorkspace:
    """The workspace of a job."""

    name: str
    mode: Literal["Write", "Read"]


@dataclass(frozen=True, kw_only=True)
class RequestedFiles:
    """Access of the supervisor to the files of one execution."""

    host: str
    port: int
    token: str
    workspace: RequestedWorkspace | None
    max_artifacts: int
    max_artifact_bytes: int

    @classmethod
    def from_field(cls, value: object) -> "RequestedFiles":
        """Parse the field `files`.

        Raises:
            InvalidRequest: a field of it is missing, unknown or invalid.
        """
        fields = check_fields(value, _FIELDS, "files")
        url = fields.get("url")
        if not isinstance(url, str) or (address := parse_address(url)) is None:
            raise InvalidRequest("files.url: must be http://IP:PORT")
        workspace = fields.get("workspace")
        return cls(
            host=address[0],
            port=address[1],
            token=check_token(fields.get("token"), "files.token"),
            workspace=None if workspace is None else _parse_workspace(workspace),
            max_artifacts=_parse_count(fields, "maxArtifacts"),
            max_artifact_bytes=_parse_count(fields, "maxArtifactBytes"),
        )

    def __repr__(self) -> str:
        return f"RequestedFiles(workspace={self.workspace!r})"


def parse_address(url: str) -> tuple[str, int] | None:
    """Return IP address and port of `http://IP:PORT`, or None for any other URL. A sandbox has no DNS."""
    try:
        parts = urlsplit(url)
        host = str(ipaddress.ip_address(parts.hostname or ""))
        port = parts.port
    except ValueError:
        return None
    plain = parts.scheme == "http" and parts.path in ("", "/") and not (parts.query or parts.fragment)
    return (host, port) if plain and port is not None and parts.username is None else None


def check_token(value: object, path: str) -> str:
    """Return a token. Raises InvalidRequest if a header could not carry it."""
    if not isinstance(value, str) or not re.fullmatch(rf"[!-~]{{1,{MAX_TOKEN_CHARACTERS}}}", value):
        raise InvalidRequest(f"{path}: must be 1 to {MAX_TOKEN_CHARACTERS} visible ASCII characters")
    return value


def _parse_workspace(value: object) -> RequestedWorkspace:
    fields = check_fields(value, _WORKSPACE_FIELDS, "files.workspace")
    name, mode = fields.get("name"), fields.get("mode")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequest("files.workspace.name: must be 1 to 50 lower-case letters, digits and '-'")
    if mode not in ("Write", "Read"):
        raise InvalidRequest("files.workspace.mode: must be Write or Read")
    return RequestedWorkspace(name=name, mode="Write" if mode == "Write" else "Read")


def _parse_count(fields: dict[str, object], name: str) -> int:
    value = fields.get(name)
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    raise InvalidRequest(f"files.{name}: must be an integer from 0 to {MAX_COUNT}")


@dataclass(kw_only=True)
class FilesReport:
    """Files of a run at its end, for the event `end`."""

    workspace: dict[str, Any] | None = None
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Files that were not saved, for people."""


@dataclass(kw_only=True)
class KeptFiles:
    """The supervisor's state of the files in the working folder, from one run of a session to the next."""

    root: Path
    """The working folder."""
    workspace: "WorkspaceFolder | None" = None
    seen: "dict[str, Signature]" = field(default_factory=dict)
    """Artifacts that were there at the end of the last run."""

    @property
    def artifacts(self) -> Path:
        """The folder of artifacts."""
        return self.root / ARTIFACTS_FOLDER

    def make_artifacts_folder(self) -> None:
        """Make the folder of artifacts, which code may write to without making it."""
        self.artifacts.mkdir(exist_ok=True)

    def has_artifacts(self) -> bool:
        """Return whether there is anything in the folder of artifacts, or something else in its place."""
        try:
            with os.scandir(self.artifacts) as entries:
                return next(entries, None) is not None
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def take_untouched(self) -> bool:
        """Return whether no code has run since the workspace was saved. From now on some may have."""
        if self.workspace is None:
            return False
        is_untouched, self.workspace.is_untouched = self.workspace.is_untouched, False
        return is_untouched

    def forget(self) -> None:
        """Forget all files: the folder was emptied."""
        self.workspace, self.seen = None, {}
