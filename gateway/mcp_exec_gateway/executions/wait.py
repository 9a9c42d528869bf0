"""Waiting on behalf of a client, for as long as it is there."""

import asyncio
from typing import Any, Final

from starlette.types import Receive

from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.executions.index import Gone, Released
from mcp_exec_gateway.http.problems import Problem
from mcp_exec_gateway.http.request_body import ClientGone

DEFAULT_WAIT_SECONDS: Final = 30.0


async def disconnected(receive: Receive) -> None:
    """Returns when the client goes away; the request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def outcome(future: asyncio.Future[Object], *, name: str, receive: Receive, seconds: float) -> Object | None:
    """The future's execution, or None where it was not there in time or the process stops.

    Raises ClientGone when the client goes away first, Problem when the execution is deleted.
    """
    leaving = asyncio.create_task(disconnected(receive))
    either: set[asyncio.Future[Any]] = {future, leaving}
    try:
        done, _ = await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
    try:
        if future in done:
            return future.result()
    except Gone:
        raise Problem("deleted", 410, f"execution {name} was deleted before it ended", execution=name) from None
    except Released:
        return None
    if leaving in done:
        raise ClientGone
    return None
