"""JSON in responses."""

import asyncio
import json
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_exec_gateway.core.http.limits import MemoryBudget
from mcp_exec_gateway.core.http.problems import HttpProblem

_LARGE_BYTES: Final = 64 * 1024
"""Size up to which a response is handed to the socket's buffer at once, and not counted."""
_CHUNK_BYTES: Final = 64 * 1024
_SEND_SECONDS: Final = 60.0
"""Time in which a client must accept a large response."""


def to_json(data: object) -> bytes:
    """Encode data as compact UTF-8. A lone surrogate becomes a question mark."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def replace_surrogates(data: Any) -> Any:
    """Return JSON data with question marks for lone surrogates, which pydantic's models refuse."""
    return json.loads(to_json(data))


def json_response(
    data: object,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    memory: MemoryBudget | None = None,
    namespace: str = "",
) -> Response:
    """Return a JSON response, see `encoded_response`.

    Starlette's JSONResponse fails on lone surrogates, which user code can print.
    """
    return encoded_response(to_json(data), status=status, headers=headers, memory=memory, namespace=namespace)


def encoded_response(
    body: bytes,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    memory: MemoryBudget | None = None,
    namespace: str = "",
) -> Response:
    """Return a response of encoded JSON. A large one counts in `memory`, for the namespace, until it is accepted."""
    if memory is None or len(body) <= _LARGE_BYTES:
        return Response(body, status, headers=headers, media_type="application/json")
    return LargeResponse(body, memory=memory, namespace=namespace, status=status, headers=headers)


class LargeResponse(Response):
    """A response that is sent in pieces as the client accepts them. If memory is short, the response is a 503."""

    def __init__(
        self,
        body: bytes,
        *,
        memory: MemoryBudget,
        namespace: str,
        status: int,
        headers: dict[str, str] | None,
        seconds: float = _SEND_SECONDS,
    ) -> None:
        super().__init__(body, status, headers=headers, media_type="application/json")
        self._memory = memory
        self._namespace = namespace
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. Raises TimeoutError, which closes the connection, if the client is too slow."""
        with self._memory.reserving(self._namespace) as reservation:
            try:
                reservation.require(len(self.body))
            except HttpProblem as problem:
                self.body = b""
                await problem.response()(scope, receive, send)
                return
            async with asyncio.timeout(self._seconds):
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                body = memoryview(self.body)
                for start in range(0, len(body), _CHUNK_BYTES):
                    more = start + _CHUNK_BYTES < len(body)
                    piece = bytes(body[start : start + _CHUNK_BYTES])
                    await send({"type": "http.response.body", "body": piece, "more_body": more})
