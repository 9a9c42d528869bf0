"""Registration of the endpoint."""

from typing import Final

from mcp_exec_gateway.core.dependencies import Dependencies, Feature, build_stream_slots
from mcp_exec_gateway.features.mcp.abandoned_runs import AbandonedRuns
from mcp_exec_gateway.features.mcp.calls import CallCache
from mcp_exec_gateway.features.mcp.route import router
from mcp_exec_gateway.features.mcp.server import build_servers
from mcp_exec_gateway.features.tools.direct import RunningCalls


def build(core: Dependencies) -> None:
    """Build the servers, and what finds the run of a call again."""
    calls = CallCache()
    core.add(AbandonedRuns(kube=core.kube, attestor=core.attestor, cache=calls))
    core.add(RunningCalls())
    core.add(build_servers(listeners=build_stream_slots(core.settings, "streams of changes")))
    core.extensions.observers.append(calls.observe)


MCP: Final = Feature(build=build, routers=(router,))
