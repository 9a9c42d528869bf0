"""Registration of tools."""

from typing import Final

from mcp_exec_common.broker.direct_calls import DirectCallClient
from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.features.tools.catalogs import ToolCatalogs
from mcp_exec_gateway.features.tools.examples import EXAMPLES
from mcp_exec_gateway.features.tools.routes import approvals_router, router
from mcp_exec_gateway.features.tools.service import Tools


def build(core: Dependencies) -> None:
    """Build catalogs and calls, and add both to statistics."""
    tools = Tools(
        catalogs=ToolCatalogs(broker=core.broker, threads=core.threads),
        direct_calls=None if core.broker is None else DirectCallClient(broker=core.broker),
    )
    core.add(tools)
    core.extensions.stats.append(tools.add_stats)


TOOLS: Final = Feature(build=build, routers=(approvals_router, router), examples=EXAMPLES)
