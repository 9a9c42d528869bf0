"""Route of the records' tables."""

from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response

from mcp_exec_api.wire.records import RecordList, RecordTable
from mcp_exec_gateway.dependencies import Injected, ListCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.openapi.operations import build_router, problems
from mcp_exec_gateway.records.reading import RecordsQuery, read_page

router = build_router(prefix="/v1/records", tag="records")


@router.get("/{table}", response_model=RecordList, response_description="A page")
@problems(404)
async def list_records(
    dependencies: Injected,
    caller: ListCaller,
    table: Annotated[RecordTable, Path(description="Table of the records.")],
    query: Annotated[RecordsQuery, Query()],
) -> Response:
    """List records.

    Returns the namespace's records of one table, oldest first, for an export. A record is complete when it is stored,
    and does not change.
    """
    return json_response(await read_page(dependencies.records, caller=caller, table=table, query=query))
