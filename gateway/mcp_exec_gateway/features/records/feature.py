"""Registration of records."""

from typing import Final

from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.features.records.examples import EXAMPLES
from mcp_exec_gateway.features.records.key_uses import KeyUses
from mcp_exec_gateway.features.records.routes import audit_router, router
from mcp_exec_gateway.features.records.service import Records


def build(core: Dependencies) -> None:
    """Build the client of records."""
    client = None if core.broker is None else RecordsClient(core.broker)
    core.add(Records(client=client))
    if client is not None:
        uses = KeyUses(client=client)
        core.add(uses)
        core.extensions.key_observers.append(uses.observe)
        core.extensions.tasks["uses of API keys"] = uses.run


RECORDS: Final = Feature(build=build, routers=(router, audit_router), examples=EXAMPLES)
