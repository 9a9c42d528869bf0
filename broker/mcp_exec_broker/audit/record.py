"""Audit records of tool calls, and their lines in the log `mcp_exec.audit`."""

import hashlib
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import uuid4

from mcp_exec_common.broker.grants import CallRights, DirectGrant, Grant

audit_lines = logging.getLogger("mcp_exec.audit")

MAX_ERROR: Final = 500
"""Characters of an error."""
SOURCES: Final = ("code", "direct")
"""Sources of calls: code in a sandbox, or the gateway for a caller."""
WIRE_NAMES: Final = {
    "id": "id",
    "at": "at",
    "namespace": "namespace",
    "execution": "execution",
    "uid": "uid",
    "pool": "pool",
    "caller": "caller",
    "user": "user",
    "server": "server",
    "tool": "tool",
    "digest": "digest",
    "arguments": "arguments",
    "decision": "decision",
    "reason": "reason",
    "approval": "approval",
    "approved_by": "approvedBy",
    "ended": "endedAt",
    "outcome": "outcome",
    "error": "error",
    "milliseconds": "durationMs",
    "bytes_in": "bytesIn",
    "bytes_out": "bytesOut",
    "calls": "calls",
    "source": "source",
    "conversation": "conversation",
}
"""Columns of the table, and their names in answers and log lines."""


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """A tool call, as the broker records it before the call is made."""

    id: str
    """Unique among all calls of this broker, in contrast to the sandbox's id of the call."""
    namespace: str
    source: str = "code"
    """`code` for a call of an execution, `direct` for a call of the gateway for a caller."""
    execution: str
    """Name of the execution; empty for a direct call."""
    uid: str
    """UID of the execution; empty for a direct call."""
    pool: str
    caller: str | None
    user: str | None
    conversation: str | None = None
    """Conversation of a direct call, as the client named it."""
    server: str
    tool: str
    """The server's name of the tool."""
    digest: str
    """SHA-256 of the arguments, see compute_digest."""
    arguments: str
    """Redacted and bounded."""
    decision: str
    """Allow, Deny or Approve."""
    reason: str
    """Explanation of the policy decision."""

    @classmethod
    def for_grant(cls, grant: CallRights, **call: str) -> Self:
        """Return a record with a new id for a call under a grant. `call` has the fields that the grant does not."""
        return cls(
            id=str(uuid4()),
            namespace=grant.namespace,
            source="direct" if isinstance(grant, DirectGrant) else "code",
            execution=grant.name if isinstance(grant, Grant) else "",
            uid=grant.execution if isinstance(grant, Grant) else "",
            pool=grant.pool,
            caller=grant.caller,
            user=grant.user,
            conversation=grant.conversation if isinstance(grant, DirectGrant) else None,
            **call,
        )

    def to_row(self) -> dict[str, Any]:
        """Return the values by column."""
        return {name: make_storable(value) for name, value in vars(self).items()}


def compute_digest(arguments: Any) -> str:
    """Return `sha256:` and the digest of the arguments as JSON with sorted keys, as the code sent them."""
    return compute_digest_and_size(arguments)[0]


def compute_digest_and_size(arguments: Any) -> tuple[str, int]:
    """Return the digest of the arguments, and the bytes of their JSON."""
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest(), len(text)


def make_storable(value: Any) -> Any:
    """Replace lone surrogates in a text: JSON may contain them, but neither SQLite nor a log can store them."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def write_to_stdout() -> None:
    """Write audit lines as JSON to standard output, separate from the process's log."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    audit_lines.handlers = [handler]
    audit_lines.setLevel(logging.INFO)
    audit_lines.propagate = False


def log_line(event: str, row: Mapping[str, Any]) -> None:
    """Write the log line of one event."""
    if audit_lines.isEnabledFor(logging.INFO):
        fields = {WIRE_NAMES[name]: value for name, value in row.items()}
        audit_lines.info(json.dumps({"event": event, **fields}, ensure_ascii=False))
