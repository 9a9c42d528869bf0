"""What the gateway has of tools: their catalogs, and calls without an execution."""

from dataclasses import dataclass

from mcp_exec_api.wire.stats import NamespaceStats, ServerStats
from mcp_exec_common.broker.direct_calls import DirectCallClient
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.tools.catalogs import ToolCatalogs


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Tools of MCP servers, by the broker."""

    catalogs: ToolCatalogs
    direct_calls: DirectCallClient | None
    """None if no broker is configured."""

    async def add_stats(self, stats: NamespaceStats, *, caller: Caller) -> NamespaceStats:
        """Add servers and tools that the caller may use; nothing if no broker is configured, or none responds."""
        try:
            counts = await self.catalogs.count_tools(caller)
        except HttpProblem:
            return stats
        servers = [ServerStats(name=name, tools=count) for name, count in counts.items()]
        return stats.model_copy(update={"servers": servers, "tools": sum(counts.values())})
