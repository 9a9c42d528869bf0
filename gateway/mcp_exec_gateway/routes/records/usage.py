"""Route of usage."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from mcp_exec_api.wire.usage import UsageReport
from mcp_exec_gateway.dependencies import Injected, ListCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.openapi.operations import build_router, problems
from mcp_exec_gateway.records.usage import UsageQuery, read_usage

router = build_router(prefix="/v1/usage", tag="records")


@router.get("", response_model=UsageReport, response_description="The usage")
@problems(404)
async def get_usage(dependencies: Injected, caller: ListCaller, query: Annotated[UsageQuery, Query()]) -> Response:
    """Get usage.

    Returns what models, sandboxes and tools used in the namespace, and what it cost by the installation's price table.
    Numbers of models are those that applications report: exact where the provider counted. What the other mode would
    have taken is an estimate from recorded sizes; losses are shown like savings.
    """
    prices = dependencies.settings.prices
    return json_response(await read_usage(dependencies.records, caller=caller, query=query, prices=prices))
