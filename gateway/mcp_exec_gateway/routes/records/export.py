"""Route of the records' tables."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from mcp_exec_api.wire.records import RecordTable
from mcp_exec_gateway.dependencies import Injected, ListCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.openapi import records as openapi
from mcp_exec_gateway.records import RecordsQuery, read_page

router = APIRouter(prefix="/v1/records", tags=["records"])


@router.get("/{table}", **openapi.LIST_RECORDS)
async def list_records(
    dependencies: Injected,
    caller: ListCaller,
    table: Annotated[RecordTable, Path(description="Table of the records.")],
    query: Annotated[RecordsQuery, Query()],
) -> Response:
    """List records of the namespace."""
    return json_response(await read_page(dependencies.records, caller=caller, table=table, query=query))
