"""What both ports have in common in requests on files: errors, bounds on time and memory, bodies."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from traceback import format_tb
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from mcp_exec_api.meta import Model, field_errors
from mcp_exec_api.wire.problems import PROBLEM_MEDIA_TYPE
from mcp_exec_broker.core.errors import ToolCallError
from mcp_exec_broker.core.memory import MIB, BytesInFlight, FlightLease, FlightLimits, Holder
from mcp_exec_broker.features.files.requests import FilesRefused, build_invalid, build_too_large
from mcp_exec_broker.features.files.workspace.versions import Hold
from mcp_exec_common.broker.files import FilesReason

log = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 150.0
"""Longest work on a request until its answer begins."""
_READ_BYTES: Final = 2 * MIB
"""Memory of a streamed answer."""
_Content = TypeVar("_Content", bound=Model)


def build_flight() -> BytesInFlight:
    """Return the limits on the memory of requests on files, of both ports.

    A namespace leaves room for an upload of another one, and a caller for an upload of another caller.
    """
    limits = FlightLimits(total=112 * MIB, per_namespace=72 * MIB, per_execution=64 * MIB, requests=16, wait_seconds=10)
    return BytesInFlight(limits=limits)


@dataclass(kw_only=True, eq=False)
class FilesRequest:
    """A request on files, and the memory that it holds until its answer was sent."""

    http: Request
    lease: FlightLease
    holding: AsyncExitStack

    async def hold(self, size: int) -> None:
        """Hold memory, after a bounded wait. Raises FilesRefused (BUSY)."""
        try:
            await self.lease.acquire(size)
        except ToolCallError:
            raise FilesRefused(
                FilesReason.BUSY, "other requests on files take the memory that this broker has; repeat later"
            ) from None

    @asynccontextmanager
    async def hold_briefly(self) -> AsyncIterator[Hold]:
        """Yield a `hold` whose memory is given back at the end of the block, though the answer may go on."""
        sizes = []

        async def hold(size: int) -> None:
            await self.hold(size)
            sizes.append(size)

        try:
            yield hold
        finally:
            self.lease.flight.give_back(self.lease, sum(sizes))

    async def read_body(self, limit: int) -> bytes:
        """Return a body of at most `limit` bytes. Raises FilesRefused."""
        await self.hold(2 * (self.length or limit))
        body = bytearray()
        async for part in self.http.stream():
            body += part
            if len(body) > limit:
                raise build_too_large(f"the body has more than {limit} bytes")
        return bytes(body)

    async def read_json(self, limit: int, *fields: str) -> dict[str, Any]:
        """Return a body that is a JSON object with only these fields. Raises FilesRefused."""
        try:
            content = json.loads(await self.read_body(limit))
        except (ValueError, RecursionError):
            raise build_invalid("the body is not JSON") from None
        if not isinstance(content, dict) or not content.keys() <= set(fields):
            raise build_invalid(f"the body must be a JSON object with no other fields than {', '.join(fields)}")
        return content

    async def read_model(self, model: type[_Content], limit: int) -> _Content:
        """Return a body that is a JSON object of a model. Raises FilesRefused."""
        try:
            return model.model_validate_json(await self.read_body(limit) or b"{}")
        except ValidationError as error:
            raise build_invalid(field_errors(error, model)[0].format()) from None

    @property
    def length(self) -> int | None:
        """Content-Length, which the HTTP parser has checked."""
        length = self.http.headers.get("content-length")
        return None if length is None else int(length)

    def stream(
        self, parts: AsyncIterator[bytes], *, media_type: str, size: int | None, headers: dict[str, str] | None = None
    ) -> Response:
        """Return a streamed answer, which keeps the memory until its end."""
        held = self.holding.pop_all()

        async def send() -> AsyncIterator[bytes]:
            async with held:
                async for part in parts:
                    yield part

        length = {} if size is None else {"Content-Length": str(size)}
        return StreamingResponse(send(), media_type=media_type, headers=length | (headers or {}))

    async def hold_stream(self) -> None:
        """Hold the memory of a streamed answer. Raises FilesRefused (BUSY)."""
        await self.hold(_READ_BYTES)


Refuse = Callable[[FilesRefused], Response]
"""Returns the answer to a refused request, as its sender reads it."""
FilesHandler = Callable[[FilesRequest], Awaitable[Response]]


async def answer_request(
    request: Request,
    holder: Holder,
    flight: BytesInFlight,
    handler: FilesHandler,
    *,
    refuse: Refuse,
    seconds: float = REQUEST_SECONDS,
) -> Response:
    """Return the answer to a request. `seconds` is the longest time until it begins."""
    try:
        async with AsyncExitStack() as holding:
            if flight.count_requests(holder) >= flight.limits.requests:
                raise FilesRefused(
                    FilesReason.BUSY,
                    f"{flight.limits.requests} requests of {holder.holder} are in progress, which is the limit",
                )
            lease = await holding.enter_async_context(flight.lease(holder))
            async with asyncio.timeout(seconds):
                return await handler(FilesRequest(http=request, lease=lease, holding=holding))
    except FilesRefused as error:
        return refuse(error)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody reads it
    except TimeoutError:
        return refuse(FilesRefused(FilesReason.UNAVAILABLE, f"the request took longer than {seconds:g} s"))
    except Exception as error:
        # without its text, which may contain names and contents of files
        trace = "".join(format_tb(error.__traceback__))
        log.error("the broker failed in a request on files", extra={"error": type(error).__name__, "trace": trace})
        return refuse(FilesRefused(FilesReason.UNAVAILABLE, "the broker failed"))


def refuse_sandbox(error: FilesRefused) -> Response:
    """Return the answer to a sandbox's refused request: a JSON object with reason and message."""
    return JSONResponse(error.to_json(), error.status, headers=_build_refusal_headers(error))


def refuse_service(error: FilesRefused) -> Response:
    """Return the answer to a refused request of gateway or operator: problem details, and the reason."""
    problem, headers = error.to_problem(), _build_refusal_headers(error)
    if error.version is not None:
        headers["X-Workspace-Version"] = str(error.version)
    if error.reason is FilesReason.BUSY:
        headers["Retry-After"] = "2"
    content = {**problem.model_dump(exclude_none=True), "reason": error.reason}
    return JSONResponse(content, problem.status, headers=headers, media_type=PROBLEM_MEDIA_TYPE)


def _build_refusal_headers(error: FilesRefused) -> dict[str, str]:
    """Return what ends the connection if the request's body was not read."""
    return {"Connection": "close"} if error.status in (401, 412, 413, 429) else {}


def answer_model(content: Model, *, etag: str = "") -> Response:
    """Return the answer with a model's JSON, and the tag of what it describes."""
    text = content.model_dump_json(by_alias=True, exclude_none=True)
    return Response(text, media_type="application/json", headers={"ETag": f'"{etag}"'} if etag else {})
