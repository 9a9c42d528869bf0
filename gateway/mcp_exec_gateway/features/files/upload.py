"""Bodies of any size, passed on to the broker as they arrive."""

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Final, Self

from starlette.requests import ClientDisconnect, Request

from mcp_exec_common.broker.files import MAX_UPLOAD_SECONDS
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.http.request_body import ClientDisconnected

_CLOSE: Final = {"Connection": "close"}
"""The rest of a refused body stays unread, so its connection cannot be reused."""


class UploadBody:
    """A body in parts, at most so many bytes in all."""

    def __init__(self, parts: AsyncIterable[bytes], *, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.failure: Exception | None = None
        """Why the body broke off."""
        self._parts = parts
        self._limit = limit
        self._clock = clock
        self._end = clock() + MAX_UPLOAD_SECONDS

    @classmethod
    def of_request(cls, request: Request, *, limit: int) -> Self:
        """Return a request's body. Raises HttpProblem, a 413 or 415, if its head shows that it can't be accepted."""
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > limit:
            raise _too_large(limit)
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise HttpProblem("media-type", 415, "the body is compressed; send it as it is", headers=_CLOSE)
        return cls(request.stream(), limit=limit)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return a body that is there."""

        async def read_content() -> AsyncIterator[bytes]:
            yield content

        return cls(read_content(), limit=len(content))

    def find_failure(self, problem: HttpProblem) -> Exception:
        """Return why the body broke off, or else the problem of the broker that was receiving it."""
        problem.headers |= _CLOSE
        return self.failure or problem

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the parts. Raises HttpProblem beyond a limit, a 413 or 408, and ClientDisconnected.

        The server ends a request whose body stops to arrive, or arrives too slowly.
        """
        size = 0
        try:
            async for part in self._parts:
                size += len(part)
                if size > self._limit:
                    raise _too_large(self._limit)
                if self._clock() > self._end:
                    detail = (
                        f"the body was not complete after {MAX_UPLOAD_SECONDS} seconds; send it in several requests"
                    )
                    raise HttpProblem("request-timeout", 408, detail, headers=_CLOSE)
                if part:
                    yield part
        except ClientDisconnect:
            self.failure = ClientDisconnected()
            raise self.failure from None
        except HttpProblem as problem:
            self.failure = problem
            raise


def _too_large(limit: int) -> HttpProblem:
    return HttpProblem("body-too-large", 413, f"the body has more than {limit} bytes", headers=_CLOSE)
