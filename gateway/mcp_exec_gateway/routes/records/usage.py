"""Route of usage."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from mcp_exec_gateway.dependencies import Injected, ListCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.openapi import usage as openapi
from mcp_exec_gateway.records import UsageQuery, read_usage

router = APIRouter(prefix="/v1/usage", tags=["records"])


@router.get("", **openapi.GET_USAGE)
async def get_usage(dependencies: Injected, caller: ListCaller, query: Annotated[UsageQuery, Query()]) -> Response:
    """Get what was used."""
    prices = dependencies.settings.prices
    return json_response(await read_usage(dependencies.records, caller=caller, query=query, prices=prices))
