"""Statistics of a namespace: its executions and pools, and what features add."""

from typing import Any, Final

from starlette.responses import Response

from mcp_exec_api.wire.stats import ActiveExecutions, GatewayLimits, NamespaceStats, OwnSessions
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.dependencies import Injected, ListCaller
from mcp_exec_gateway.core.executions.index import ExecutionIndex
from mcp_exec_gateway.core.http.json import json_response
from mcp_exec_gateway.core.http.parameters import InNamespace
from mcp_exec_gateway.core.openapi import Examples, build_router, show
from mcp_exec_gateway.core.pools import PoolCache

router = build_router(prefix="/v1", tag="stats")


@router.get("/stats", response_model=NamespaceStats, response_description="The statistics")
async def get_stats(dependencies: Injected, caller: ListCaller, query: InNamespace) -> Response:
    """Get statistics of a namespace.

    Returns the pools that the caller may use, with their limits, pods and libraries, the tool servers, the number of
    unfinished executions, and the caller's limits. All of it comes from caches.
    """
    settings = dependencies.settings
    stats = build_stats(
        caller,
        index=dependencies.index,
        pools=dependencies.pools,
        gateway=GatewayLimits(max_wait_seconds=settings.max_wait_seconds, max_body_bytes=settings.max_body_bytes),
    )
    for add in dependencies.extensions.stats:
        stats = await add(stats, caller=caller)
    return json_response(stats.to_api())


def build_stats(caller: Caller, *, index: ExecutionIndex, pools: PoolCache, gateway: GatewayLimits) -> NamespaceStats:
    """Build the core's part of the statistics from caches."""
    allowed = caller.limits.pools
    own = index.count_active(caller.namespace, caller.label)
    active = own if caller.limits.sees_own_only else index.count_all_active(caller.namespace)
    return NamespaceStats(
        namespace=caller.namespace,
        caller=caller.label,
        executions=ActiveExecutions(active=active, own=own),
        pools=[pool for pool in pools.list_capacities(caller.namespace) if allowed is None or pool.name in allowed],
        sessions=OwnSessions(own=0, limit=0),
        limits=caller.limits,
        gateway=gateway,
    )


_STATS: Final[dict[str, Any]] = {
    "namespace": "agents",
    "caller": "team-a",
    "executions": {"active": 12, "own": 3},
    "pools": [
        {
            "name": "default",
            "memoryBytes": 536870912,
            "cpus": 1.0,
            "runtime": "gvisor",
            "maxTimeoutSeconds": 300,
            "maxPods": 100,
            "warm": 3,
            "starting": 0,
            "busy": 12,
            "queued": 0,
            "maxQueued": 1000,
            "python": "3.11.2",
            "libraries": [],
        }
    ],
    "servers": [{"name": "expenses", "tools": 3}, {"name": "github", "tools": 26}],
    "tools": 29,
    "sessions": {"own": 2, "limit": 20},
    "limits": {"maxConcurrent": 50},
    "gateway": {"maxWaitSeconds": 310.0, "maxBodyBytes": 1048576},
}
"""Statistics of a namespace."""
EXAMPLES: Final[Examples] = {"NamespaceStats": show(one=_STATS)}
