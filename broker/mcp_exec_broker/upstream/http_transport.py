"""HTTP to MCP servers: the SDK's transport speaks the protocol, this carries its requests, over aiohttp.

aiohttp costs a third of what the SDK's own HTTP client does. What goes wrong with one request is answered to that
request alone, as a JSON-RPC error; by itself the SDK would end the whole session, and all calls in it.
"""

import io
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import httpx2
from mcp_types import CONNECTION_CLOSED
from yarl import URL

from mcp_exec_broker.upstream.credentials import UpstreamCredentials
from mcp_exec_broker.upstream.oauth import ClientCredentialsTokens, TokenRefused

UNREACHED: Final = "mcp-exec/unreached"
"""The request was not sent."""
BROKEN: Final = "mcp-exec/broken"
"""It was sent, and the connection broke."""
GONE: Final = "mcp-exec/gone"
"""The server does not know the session, and did nothing."""
UNAUTHORIZED: Final = "mcp-exec/unauthorized"
"""The server did not take the credentials."""
BROKE: Final = "the connection broke"
TOO_LARGE: Final = "the answer is larger than it may be"
_OWN_HEADERS: Final = frozenset({b"host", b"content-length", b"connection", b"accept-encoding", b"transfer-encoding"})
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=5)
_SDK_STATUS: Final = frozenset({400, 404, 405})
"""What the SDK reads as signs of the server's era."""
_SESSION: Final = "mcp-session-id"
_LARGE_BYTES: Final = 64 * 1024


def parse_mark(data: object) -> str:
    """Which of the marks the data of a JSON-RPC error has, or an empty text."""
    mark = data.get("trouble") if isinstance(data, dict) else None
    return mark if mark in (UNREACHED, BROKEN, GONE, UNAUTHORIZED) else ""


class _Body(httpx2.AsyncByteStream):
    """An answer's body, as it comes."""

    def __init__(self, response: aiohttp.ClientResponse, *, most: int | None) -> None:
        self._response = response
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        try:
            async for chunk in self._response.content.iter_any():
                taken += len(chunk)
                if self._most is not None and taken > self._most:
                    raise httpx2.StreamError(TOO_LARGE)
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # the SDK takes this for an answer that can't be read, and nothing else for it
            raise httpx2.StreamError(f"{BROKE}: {type(error).__name__}") from None

    async def aclose(self) -> None:
        """Gives the connection back, or ends it where there is more to come."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


@dataclass(kw_only=True, eq=False)
class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Carries the requests of one connection, with its credentials."""

    session: aiohttp.ClientSession
    tokens: ClientCredentialsTokens
    credentials: UpstreamCredentials
    max_bytes: int
    """Of an answer; streams are bounded event by event, by the SDK."""
    on_secret: Callable[[str], None] = lambda secret: None
    """Told each token that is used."""
    _token: str | None = field(default=None, repr=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Carries one request."""
        try:
            response = await self._send(request)
            if response.status == 401 and self.credentials.oauth:
                response.close()
                response = await self._send(request, refused=self._token)
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            return _failed(UNREACHED, f"no connection: {type(error).__name__}")
        except TokenRefused as error:
            return _failed(UNAUTHORIZED, str(error))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            sent = not isinstance(error, aiohttp.ConnectionTimeoutError)
            return _failed(BROKEN if sent else UNREACHED, f"{BROKE}: {type(error).__name__}")
        return self._answer(request, response)

    async def _send(self, request: httpx2.Request, *, refused: str | None = None) -> aiohttp.ClientResponse:
        headers = [(key.decode("ascii"), value.decode("latin-1")) for key, value in request.headers.raw
                   if key.lower() not in _OWN_HEADERS]  # fmt: skip
        own = {**self.credentials.headers, "Accept-Encoding": "identity"}
        if self.credentials.oauth is not None:
            self._token = await self.tokens.get(self.credentials.oauth, refused=refused)
            self.on_secret(self._token)
            own["Authorization"] = f"Bearer {self._token}"
        given = {name.lower() for name in own}
        return await self.session.request(
            request.method,
            URL(str(request.url), encoded=True),
            headers=[*((name, value) for name, value in headers if name.lower() not in given), *own.items()],
            data=_data(request.content),
            timeout=_TIMEOUT,
            allow_redirects=False,
        )

    def _answer(self, request: httpx2.Request, response: aiohttp.ClientResponse) -> httpx2.Response:
        status, kind = response.status, response.content_type
        if status in (401, 403):
            response.close()
            return _failed(UNAUTHORIZED, f"the server answers {status}: it does not take the credentials")
        if status == 404 and request.method == "POST" and _SESSION in request.headers:
            response.close()
            return _failed(GONE, "the server has ended the session")
        if status >= 400 and status not in _SDK_STATUS and kind != "application/json":
            response.close()
            return _failed("", f"the server answers {status}")
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            response.close()
            return _failed("", "the server compresses although it was told not to")
        most = None if kind == "text/event-stream" and status < 300 else self.max_bytes
        return httpx2.Response(
            status, headers=[(key, value) for key, value in response.raw_headers], stream=_Body(response, most=most)
        )


def _data(content: bytes) -> bytes | io.BytesIO | None:
    # aiohttp sends large texts bit by bit where they look like files
    return io.BytesIO(content) if len(content) > _LARGE_BYTES else content or None


def _failed(mark: str, message: str) -> httpx2.Response:
    error: dict[str, Any] = {"code": CONNECTION_CLOSED, "message": message, "data": {"trouble": mark}}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    return httpx2.Response(502, headers={"Content-Type": "application/json"}, content=body)
