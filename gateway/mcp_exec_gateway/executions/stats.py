"""Statistics of a namespace as its callers may see them: pools, executions, tools, and the caller's limits."""

from collections.abc import Mapping

from mcp_exec_api.meta import Model
from mcp_exec_common.api_keys import KeyLimits
from mcp_exec_gateway.auth.authenticator import Caller
from mcp_exec_gateway.executions.index import ExecutionIndex
from mcp_exec_gateway.pools.cache import PoolCache
from mcp_exec_gateway.pools.capacity import PoolCapacity


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
    """What a caller can use in a namespace, and what is in use."""

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


def build_stats(
    caller: Caller,
    *,
    index: ExecutionIndex,
    pools: PoolCache,
    tools: Mapping[str, int] | None,
    sessions: OwnSessions,
    gateway: GatewayLimits,
) -> NamespaceStats:
    """Build the statistics from caches. `tools` is the number of tools by server, or None if it is unknown."""
    allowed = caller.limits.pools
    own = index.count_active(caller.namespace, caller.label)
    active = own if caller.limits.sees_own_only else index.count_all_active(caller.namespace)
    return NamespaceStats(
        namespace=caller.namespace,
        caller=caller.label,
        executions=ActiveExecutions(active=active, own=own),
        pools=[pool for pool in pools.list_capacities(caller.namespace) if allowed is None or pool.name in allowed],
        servers=None if tools is None else [ServerStats(name=name, tools=count) for name, count in tools.items()],
        tools=None if tools is None else sum(tools.values()),
        sessions=sessions,
        limits=caller.limits,
        gateway=gateway,
    )
