"""Statistics of a namespace as its callers may see them: pools, executions, tools, and the caller's limits."""

from collections.abc import Mapping

from mcp_exec_api.wire.stats import ActiveExecutions, GatewayLimits, NamespaceStats, OwnSessions, ServerStats
from mcp_exec_gateway.auth.callers import Caller
from mcp_exec_gateway.executions.index import ExecutionIndex
from mcp_exec_gateway.pools.cache import PoolCache


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
