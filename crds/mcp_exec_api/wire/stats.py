"""A caller's pools, tool servers and limits in a namespace."""

from functools import cached_property
from typing import Annotated

from pydantic import Field

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.constants import DEFAULT_LANGUAGE, Language
from mcp_exec_api.meta import Model, ToolPattern, UserPattern
from mcp_exec_api.sandbox_pool import Library
from mcp_exec_tools.patterns import NamePatterns, ToolPatterns


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
    """Tools that executions may call and that searches show, as patterns such as `github.*`. An empty list means
    none."""
    users: Annotated[list[UserPattern] | None, Field(max_length=256)] = None
    """Users that executions may name, as patterns such as `team-a/*`: none if the list is empty. An execution without a
    user is always allowed."""
    own: bool | None = None
    """Whether the key sees, cancels, deletes and approves only executions that it created itself, for users that it may
    name: by default true if `users` is set."""

    @property
    def sees_own_only(self) -> bool:
        """Whether the executions of others look as if they did not exist."""
        return self.users is not None if self.own is None else self.own

    def allows_user(self, user: str | None) -> bool:
        """Return whether an execution may name this user, or none."""
        return not user or self.known_users is None or self.known_users.match(user)

    @cached_property
    def known_users(self) -> NamePatterns | None:
        """`users`, compiled."""
        return None if self.users is None else NamePatterns(self.users)

    @cached_property
    def known_tools(self) -> ToolPatterns | None:
        """`tools`, compiled."""
        return None if self.tools is None else ToolPatterns(self.tools)


class PoolCapacity(Model):
    """A pool, what its pods offer to code, and how many there are."""

    name: str
    """Name of the pool, for `poolRef.name`."""
    language: Language = DEFAULT_LANGUAGE
    """Language of the code that it runs."""
    memory_bytes: int | None = None
    """Memory limit of a sandbox in bytes. Not set if the spec is invalid."""
    cpus: float | None = None
    """CPU limit of a sandbox in cores. Not set if the spec is invalid."""
    runtime: str | None = None
    """RuntimeClass of the pods. Not set if it is the nodes' default."""
    max_timeout_seconds: int
    """Maximum `timeoutSeconds` of an execution."""
    max_pods: int
    """Maximum number of pods."""
    warm: int
    """Pods that are ready and idle."""
    starting: int
    """Pods that are not ready yet."""
    busy: int
    """Pods that run an execution."""
    queued: int
    """Executions that wait for a pod."""
    max_queued: int
    """Maximum number of executions that wait."""
    python: str | None = None
    """Python of the pool's image. Not set until a pod has become ready."""
    libraries: tuple[Library, ...] | None = None
    """Libraries that code can import in the pool, the largest first, at most 100. Not set until a pod has become
    ready."""


class ServerStats(Model):
    """A tool server."""

    name: str
    """Name of the server."""
    tools: int
    """Number of its tools that the caller may use."""


class ActiveExecutions(Model):
    """Number of unfinished executions."""

    active: int
    """Unfinished executions of the namespace; those of the caller, if its key is limited to its own."""
    own: int
    """Unfinished executions of the caller."""


class OwnSessions(Model):
    """Sessions of the caller that have a pod or will get one."""

    own: int
    """Number of them, for all users."""
    limit: int
    """Maximum number of them."""


class GatewayLimits(Model):
    """Limits of each request to the gateway."""

    max_wait_seconds: float
    """Maximum `wait`."""
    max_body_bytes: int
    """Maximum size of a body."""


class NamespaceStats(Model):
    """A caller's pools, tool servers and limits in a namespace, and their use."""

    namespace: str
    """Namespace of the request."""
    caller: str
    """Name of the caller, as executions have it."""
    executions: ActiveExecutions
    """Unfinished executions."""
    pools: list[PoolCapacity]
    """Pools that the caller may use, in alphabetical order. Counts of pods are up to about a second old."""
    servers: list[ServerStats] | None = None
    """Servers with tools that the caller may use. Not set if no broker responds."""
    tools: int | None = None
    """Number of tools that the caller may use. Not set if no broker responds."""
    sessions: OwnSessions
    """Sessions of the caller that have a pod or will get one."""
    limits: KeyLimits
    """Limits of the caller's API key; empty for a ServiceAccount."""
    gateway: GatewayLimits
    """Limits of each request."""
