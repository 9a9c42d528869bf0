"""What a Secret holds of each API key: its digest, namespace and limits. And how a key and its digest are made."""

import hashlib
import secrets
from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.meta import Model, ToolPattern, UserPattern
from mcp_exec_tools.patterns import name_matches

KEY_PREFIX: Final = "mcpx_"


class KeyLimits(Model):
    """Limits of one API key. A limit that is not set does not apply."""

    max_concurrent: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of unfinished executions, queued ones included."""
    max_stored: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of stored executions, finished ones included until they are deleted: by default that of the
    namespace, which no key exceeds."""
    max_stored_bytes: Annotated[int | None, Field(ge=1)] = None
    """Maximum bytes that the stored executions take in the API server: by default those of the namespace."""
    requests_per_minute: Annotated[int | None, Field(ge=1)] = None
    """Maximum rate of requests of all kinds to one gateway replica: a burst of this size, refilled over a minute."""
    direct_calls_per_minute: Annotated[int | None, Field(ge=1)] = None
    """Maximum rate of tool calls without an execution, by MCP clients, at each replica of the broker: by default
    600."""
    max_waits: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of requests that wait for an execution at the same time, at each gateway replica."""
    max_streams: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of open event streams, at each gateway replica."""
    max_sessions: Annotated[int | None, Field(ge=0)] = None
    """Maximum number of sessions that have a pod or will get one: by default that of the gateway's setting."""
    max_workspaces: Annotated[int | None, Field(ge=0)] = None
    """Maximum number of workspaces for each user: by default that of the broker's setting, which no key exceeds."""
    max_timeout_seconds: Annotated[int | None, Field(ge=1)] = None
    """Maximum `timeoutSeconds` of an execution."""
    pools: Annotated[list[str] | None, Field(min_length=1)] = None
    """Pools that executions may use."""
    max_priority: Priority | None = None
    """Highest `priority` of an execution."""
    tools: Annotated[list[ToolPattern] | None, Field(max_length=256)] = None
    """Tools that executions may call and that searches show, as patterns such as `github.*`."""
    users: Annotated[list[UserPattern] | None, Field(max_length=256)] = None
    """Users that executions may name, as patterns such as `team-a/*`. An execution without a user is always allowed."""
    own: bool | None = None
    """Whether the key sees, cancels, deletes and approves only executions that it created itself, for users that it may
    name: by default true if `users` is set."""

    @property
    def sees_own_only(self) -> bool:
        """Whether the executions of others look as if they did not exist."""
        return self.users is not None if self.own is None else self.own

    def allows_user(self, user: str | None) -> bool:
        """Return whether an execution may name this user, or none."""
        return not user or self.users is None or any(name_matches(pattern, user) for pattern in self.users)


class KeyEntry(Model):
    """One entry of the Secret. Its key in the Secret's data is the API key's name."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 digest of the API key, in lower-case hexadecimal."""
    namespace: Annotated[str, Field(min_length=1)]
    """Namespace of everything that the API key reads and runs."""
    limits: KeyLimits = KeyLimits()
    """Limits of the API key."""
    approver: bool = False
    """Whether the API key may decide on approvals."""
    expires_at: AwareDatetime | None = None
    """Time from which on the key is refused; by default it never expires."""


def generate_key() -> str:
    """Return a new API key of 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def digest_key(key: str) -> str:
    """Return the digest that is stored of an API key."""
    return hashlib.sha256(key.encode()).hexdigest()
