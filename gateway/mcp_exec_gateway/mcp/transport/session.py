"""Sessions of the revisions before 2026-07-28: what the client declared at initialization, inside the session's id.

The gateway stores no sessions. A client declares its revision and capabilities once, in `initialize`, and sends the
session's id with every later request, so the id carries them and any replica can serve the request. A client that
makes up an id only changes what is sent to itself.
"""

import re
import secrets
from dataclasses import dataclass
from typing import Final, Self

from mcp_types import DEFAULT_NEGOTIATED_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request

from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.mcp.sdk import MCP_PROTOCOL_VERSION_HEADER

SESSION_HEADER: Final = "mcp-session-id"
_ID: Final = re.compile(r"(\d{4}-\d\d-\d\d)\.([01])\.[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class Session:
    """One client between its initialization and its end."""

    id: str
    version: str
    """The revision that was negotiated."""
    elicitation: bool
    """Whether the client can show forms to its user."""

    @classmethod
    def create(cls, *, version: str, elicitation: bool) -> Self:
        """Create a session with a new id."""
        session_id = f"{version}.{elicitation:d}.{secrets.token_hex(16)}"
        return cls(id=session_id, version=version, elicitation=elicitation)

    @classmethod
    def read(cls, request: Request) -> Self | None:
        """Return the session of a request, or None if it names none.

        Raises HttpProblem, a 404, for an id that this gateway did not create: the client then initializes again.
        """
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            return None
        match = _ID.fullmatch(session_id)
        if match is None or match[1] not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise HttpProblem("not-found", 404, f"{SESSION_HEADER}: no session of this gateway; initialize again")
        return cls(id=session_id, version=match[1], elicitation=match[2] == "1")


def find_version(request: Request, session: Session | None) -> str:
    """Return the revision of a request: its header's, its session's, or else the one that the protocol assumes."""
    version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
    return version or (session.version if session else DEFAULT_NEGOTIATED_VERSION)
