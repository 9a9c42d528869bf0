"""Tokens that a client returns: where a run is resumed, or which approval a form is about.

They hold no rights: what a token names is authorized for its sender as if the sender had named it in a request of its
own. So they need no signature, and no replica has to remember them.
"""

import base64
import json
from dataclasses import dataclass
from typing import Any, Final, Self

from mcp_types import RequestId

from mcp_exec_gateway.core.events.follower import StreamPosition
from mcp_exec_gateway.core.executions.submission import is_object_name
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field
from mcp_exec_gateway.features.mcp.sdk import as_request_id

_MAX_TOKEN: Final = 16_384
_MAX_ASKED: Final = 32
"""Approvals in a token, the newest: more than can wait for a decision at the same time."""
_MAX_TOOL: Final = 512


def _encode(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode().rstrip("=")


def _decode(token: str, count: int) -> list[Any]:
    """Return the parts of a token. Raises ValueError."""
    if len(token) > _MAX_TOKEN:
        raise ValueError
    try:
        parts = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
    except RecursionError as error:
        raise ValueError from error
    if not isinstance(parts, list) or len(parts) != count:
        raise ValueError
    return parts


def _read_name(value: Any) -> str:
    if not isinstance(value, str) or not is_object_name(value):
        raise ValueError
    return value


@dataclass(frozen=True, kw_only=True)
class ResumePoint:
    """Where a client continues to follow a run: the id of an event, or the state of a multi-round-trip request."""

    execution: str
    """Name of the execution."""
    position: StreamPosition
    """Position in the execution's events."""
    request_id: RequestId | None = None
    """Id of the request that waits for the result, in revisions with sessions."""
    progress_token: RequestId | None = None
    """Token of that request's progress notifications."""
    asked: tuple[tuple[str, str], ...] = ()
    """Id and arguments' digest of each approval that the client was asked for."""

    def __str__(self) -> str:
        return _encode(
            self.execution, str(self.position), self.request_id, self.progress_token, self.asked[-_MAX_ASKED:]
        )

    @classmethod
    def parse(cls, token: str, *, field: str) -> Self:
        """Parse a token. Raises HttpProblem, a 422 for the field that it is from."""
        try:
            name, position, request_id, progress_token, asked = _decode(token, 5)
            if not isinstance(asked, list) or len(asked) > _MAX_ASKED:
                raise ValueError
            return cls(
                execution=_read_name(name),
                position=StreamPosition.parse(str(position)),
                request_id=as_request_id(request_id),
                progress_token=as_request_id(progress_token),
                asked=tuple((str(approval)[:64], str(digest)[:71]) for approval, digest in asked),
            )
        except (ValueError, TypeError, HttpProblem):
            raise invalid_field(field, "not a token of this gateway") from None


@dataclass(frozen=True, kw_only=True)
class ApprovalToken:
    """The approval that a form is about: the id of a request to the client."""

    execution: str
    approval: str
    digest: str
    """Digest of the arguments that the form shows."""

    def __str__(self) -> str:
        return "approval." + _encode(self.execution, self.approval, self.digest)

    @classmethod
    def parse(cls, request_id: RequestId) -> Self | None:
        """Parse the id of a response, or return None if it responds to no form."""
        prefix, _, token = str(request_id).partition(".")
        if prefix != "approval":
            return None
        try:
            name, approval, digest = _decode(token, 3)
            return cls(execution=_read_name(name), approval=str(approval)[:64], digest=str(digest)[:71])
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, kw_only=True)
class ConsentToken:
    """The direct call that a form is about: the state of a request that the client repeats."""

    tool: str
    """SERVER.TOOL."""
    digest: str
    """Digest of the arguments that the form shows."""

    def __str__(self) -> str:
        return _encode(self.tool, self.digest)

    @classmethod
    def parse(cls, token: str) -> Self:
        """Parse a token. Raises HttpProblem, a 422."""
        try:
            tool, digest = _decode(token, 2)
            return cls(tool=str(tool)[:_MAX_TOOL], digest=str(digest)[:71])
        except (ValueError, TypeError):
            raise invalid_field("requestState", "not a token of this gateway") from None
