"""Refusals of requests on files."""

from collections.abc import Sequence
from typing import Any

from mcp_exec_common.broker.files import FILES_STATUS, FilesReason, explain_refusal


class FilesRefused(Exception):
    """A request on files that is refused. The message is for the sender: it has no keys and addresses of the store."""

    def __init__(
        self, reason: FilesReason, message: str, *, missing: Sequence[str] = (), version: int | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.missing = missing
        """Contents that a commit needs and that are not stored."""
        self.version = version
        """Newest version of the workspace, if the sender does not know it."""

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return FILES_STATUS[self.reason]

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        more: dict[str, Any] = {"missing": list(self.missing)} if self.missing else {}
        if self.version is not None:
            more["version"] = self.version
        return explain_refusal(self.reason, str(self), **more)


def build_invalid(message: object) -> FilesRefused:
    """Return the refusal of a malformed request."""
    return FilesRefused(FilesReason.INVALID, str(message))


def build_too_large(message: str) -> FilesRefused:
    """Return the refusal of a request that exceeds a quota or a limit."""
    return FilesRefused(FilesReason.TOO_LARGE, message)
