"""A request's wait for an execution, which ends if the client disconnects."""

import asyncio
from typing import Any

from starlette.types import Receive

from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.executions.index import ExecutionDeleted, ShuttingDown
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.http.request_body import ClientDisconnected, wait_for_disconnect


async def wait_for_end(
    future: asyncio.Future[Object | None], *, name: str, receive: Receive, seconds: float
) -> Object | None:
    """Return the execution of the future, or None if it has to be read: after a time-out, or if memory is short.

    Raises ClientDisconnected if the client disconnects first, and HttpProblem if the execution is deleted.
    """
    disconnect = asyncio.create_task(wait_for_disconnect(receive))
    either: set[asyncio.Future[Any]] = {future, disconnect}
    try:
        done, _ = await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        disconnect.cancel()
    try:
        if future in done:
            return future.result()
    except ExecutionDeleted:
        raise HttpProblem("deleted", 410, f"execution {name} was deleted before it ended", execution=name) from None
    except ShuttingDown:
        return None
    if disconnect in done:
        raise ClientDisconnected
    return None
