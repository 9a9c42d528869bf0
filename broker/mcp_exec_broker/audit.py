"""One record of each call, written before it travels and when it ends."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from mcp_exec_broker.failures import Outcome


@dataclass(frozen=True, kw_only=True)
class Call:
    """What is known of a call before it is made."""

    id: str
    """Unique among all calls: execution's uid and the sandbox's id of it are fields of their own."""
    namespace: str
    execution: str
    """The execution's name."""
    uid: str
    pool: str
    caller: str | None
    user: str | None
    server: str
    tool: str
    """Its name at the server."""
    digest: str
    """SHA-256 of the arguments as JSON, see digest_of."""
    arguments: str
    """Redacted and bounded."""
    decision: str
    """Allow, Deny, Approve."""
    reason: str
    """Why: Verdict.why."""


def digest_of(arguments: Any) -> str:
    """`sha256:` of the arguments as JSON with sorted keys."""
    raise NotImplementedError


class Audit:
    """The records, in a SQLite file and as lines of the logger `mcp_exec.audit`."""

    @classmethod
    def opened(
        cls, path: Path, *, keep_days: float = 30, keep_bytes: int = 1024**3
    ) -> AbstractAsyncContextManager[Self]:
        """Opens the file and closes the records of calls that an earlier process left under way."""
        raise NotImplementedError

    async def begin(self, call: Call) -> None:
        """Returns when the record is durable: only then may the call travel."""

    async def end(
        self,
        id: str,
        outcome: Outcome,
        *,
        milliseconds: float,
        bytes_in: int,
        bytes_out: int,
        error: str = "",
        approval: str | None = None,
        approved_by: str | None = None,
    ) -> None:
        """How it ended. `bytes_in` went into the sandbox, `bytes_out` to the server."""

    async def query(
        self,
        *,
        namespace: str = "",
        execution: str = "",
        tool: str = "",
        outcome: str = "",
        since: str = "",
        until: str = "",
        limit: int = 100,
        cursor: str = "",
    ) -> dict[str, Any]:
        """`{"items": [...], "next": cursor or None}`, newest first. Raises ValueError where a filter is no good."""
        raise NotImplementedError
