"""Registration of records."""

from typing import Final

from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.features.records.examples import EXAMPLES
from mcp_exec_gateway.features.records.routes import audit_router, router
from mcp_exec_gateway.features.records.service import Records


def build(core: Dependencies) -> None:
    """Build the client of records."""
    core.add(Records(client=None if core.broker is None else RecordsClient(core.broker)))


RECORDS: Final = Feature(build=build, routers=(router, audit_router), examples=EXAMPLES)
