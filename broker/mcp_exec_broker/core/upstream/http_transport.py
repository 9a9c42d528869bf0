"""HTTP transport to MCP servers: it carries the requests of the SDK's protocol implementation over aiohttp.

aiohttp takes a third of the time of the SDK's own HTTP client. A failed request is answered with a JSON-RPC error;
otherwise the SDK would end the whole session and all its calls.
"""

import io
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import httpx2
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND
from yarl import URL

from mcp_exec_api.reasons.server import ServerReason, find_server_reason
from mcp_exec_broker.core.memory import AnswerRefused, MessageScale, get_receiver
from mcp_exec_broker.core.upstream.addresses import explain_connection_error, explain_status
from mcp_exec_broker.core.upstream.credentials import ClientCredentialsTokens, TokenRefused, UpstreamCredentials
from mcp_exec_broker.core.upstream.messages import NotTheAnswer, find_request_id, read_answer, replace_halves
from mcp_exec_common.process.outgoing_client import CONNECTION_ERRORS, OutgoingClient

UNREACHED: Final = "mcp-exec/unreached"
"""The request was not sent."""
BROKEN: Final = "mcp-exec/broken"
"""The request was sent, and the connection broke."""
GONE: Final = "mcp-exec/gone"
"""The server no longer has the session, and did nothing."""
UNAVAILABLE: Final = "mcp-exec/unavailable"
"""What answers is not the server, or the server can't answer now. It may have done what was requested."""
UNAUTHORIZED: Final = "mcp-exec/unauthorized"
"""The server rejected the credentials."""
BROKE: Final = "the connection broke"
TOO_LARGE: Final = "the answer exceeds its size limit"
_OWN_HEADERS: Final = frozenset({b"host", b"content-length", b"connection", b"accept-encoding", b"transfer-encoding"})
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=5)
_MCP_TYPES: Final = ("application/json", "text/event-stream")
_SESSION_HEADER: Final = "mcp-session-id"
_MIN_FILE_BYTES: Final = 64 * 1024
_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")
"""Ends of events, whatever else a reader takes for one. A stream with others is weighed as one message."""


def parse_mark(data: object) -> str:
    """Return the mark in the data of a JSON-RPC error, or an empty text."""
    mark = data.get("trouble") if isinstance(data, dict) else None
    return mark if mark in (UNREACHED, BROKEN, GONE, UNAVAILABLE, UNAUTHORIZED) else ""


def parse_reason(data: object) -> ServerReason | None:
    """Return the reason in the data of a JSON-RPC error of this transport, or None."""
    return find_server_reason(data.get("reason")) if isinstance(data, dict) else None


class _BodyStream(httpx2.AsyncByteStream):
    """Body of a response, limited in size, whose messages are weighed before the SDK gets them."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        *,
        max_bytes: int,
        is_events: bool = False,
        request_id: int | None = None,
    ) -> None:
        """`is_events` is whether the body is a stream of events, which are limited one by one.

        Any other body has to be the answer to the request with this id, if one is given.
        """
        self._response = response
        self._max_bytes = max_bytes
        self._is_events = is_events
        self._request_id = None if is_events else request_id
        self._receiver = get_receiver()
        self._end = b""
        """The last bytes of a stream of events."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0 if self._is_events else self._response.content_length or 0
        scale = MessageScale(receiver=self._receiver, expected=min(length, self._max_bytes))
        received, held = 0, bytearray()
        # StreamError is the only exception that the SDK treats as an unreadable response
        try:
            async for chunk in self._response.content.iter_any():
                received += len(chunk)
                if not self._is_events and received > self._max_bytes:
                    raise httpx2.StreamError(TOO_LARGE)
                await self._weigh(chunk, scale)
                # a line of events, or a whole body, is passed on at once, so that no escape is cut in two
                line_end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1 if self._is_events else 0
                end = len(held) + (line_end or len(chunk))
                held += chunk
                if line_end or end > self._max_bytes:
                    yield self._repair(bytes(held[:end]))
                    del held[:end]
            if held:
                yield self._repair(bytes(held))
        except (AnswerRefused, NotTheAnswer) as error:
            raise httpx2.StreamError(str(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise httpx2.StreamError(f"{BROKE}: {type(error).__name__}") from None

    def _repair(self, text: bytes) -> bytes:
        repaired = replace_halves(text)
        self._receiver.has_halves = self._receiver.has_halves or repaired is not text
        return repaired if self._request_id is None else read_answer(repaired, self._request_id)

    async def _weigh(self, chunk: bytes, scale: MessageScale) -> None:
        """Weigh a chunk. In a stream of events, what follows the last empty line begins a message."""
        if not self._is_events:
            await scale.add(chunk)
            return
        text = self._end + chunk
        cut = max(text.rfind(mark) + len(mark) if mark in text else 0 for mark in _EVENT_ENDS) - len(self._end)
        self._end = text[-3:]
        if cut > 0:
            await scale.add(chunk[:cut])
            scale.restart()
        await scale.add(chunk[max(cut, 0) :])

    async def aclose(self) -> None:
        """Release the connection, or close it if the body is incomplete."""
        self._receiver.hand_over()
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


@dataclass(kw_only=True, eq=False)
class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Transport of one session, with its credentials."""

    client: OutgoingClient
    oauth_tokens: ClientCredentialsTokens
    credentials: UpstreamCredentials
    max_bytes: int
    """Maximum size of a response; the SDK limits each event of a stream."""
    on_secret: Callable[[str], None] = lambda secret: None
    """Called with each access token before its use."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and return the response; failures become JSON-RPC errors."""
        try:
            token = await self._get_token()
            response = await self._send(request, token)
            if response.status == 401 and token is not None:
                response.close()
                response = await self._send(request, await self._get_token(rejected=token))
            return await self._convert(request, response)
        except (*CONNECTION_ERRORS, aiohttp.InvalidURL) as error:
            reason, message = explain_connection_error(error)
            return _build_error(UNREACHED, message, reason)
        except TokenRefused as error:
            return _build_error(UNAUTHORIZED, str(error), error.reason)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return _build_error(BROKEN, f"{BROKE} before an answer", ServerReason.CONNECTION_LOST)

    async def _get_token(self, *, rejected: str | None = None) -> str | None:
        """Return the access token of one request: others at the same time may have another one."""
        if self.credentials.oauth is None:
            return None
        token = await self.oauth_tokens.get_token(self.credentials.oauth, rejected=rejected)
        self.on_secret(token)
        return token

    async def _send(self, request: httpx2.Request, token: str | None) -> aiohttp.ClientResponse:
        headers = [(key.decode("ascii"), value.decode("latin-1")) for key, value in request.headers.raw
                   if key.lower() not in _OWN_HEADERS]  # fmt: skip
        own = {**self.credentials.headers, "Accept-Encoding": "identity"}
        if token is not None:
            own["Authorization"] = f"Bearer {token}"
        own_names = {name.lower() for name in own}
        return await self.client.request(
            request.method,
            URL(str(request.url), encoded=True),
            tls=self.credentials.tls,
            headers=[*((name, value) for name, value in headers if name.lower() not in own_names), *own.items()],
            data=_wrap_content(request.content),
            timeout=_TIMEOUT,
        )

    async def _convert(self, request: httpx2.Request, response: aiohttp.ClientResponse) -> httpx2.Response:
        status, kind, is_post = response.status, response.content_type, request.method == "POST"
        error = None
        if status in (401, 403):
            message = f"the server answers {status}: it rejects the credentials, or requires some"
            error = _build_error(UNAUTHORIZED, message, ServerReason.UNAUTHORIZED)
        elif status == 404 and is_post and _SESSION_HEADER in request.headers:
            error = _build_error(GONE, "the server has ended the session")
        elif response.headers.get("Content-Encoding", "identity").lower() != "identity":
            message = "the server compresses its answer although the request forbids it"
            error = _build_error("", message, ServerReason.PROTOCOL_ERROR)
        elif is_post and 200 <= status < 300 and status != 202 and kind not in _MCP_TYPES:
            message = f"the server answers with {kind[:80]} instead of JSON or an event stream"
            error = _build_error(UNAVAILABLE, message, ServerReason.NOT_MCP)
        if error is not None:
            response.close()
            return error
        if status >= 400 and is_post:
            return await self._convert_failure(response)
        is_events = kind == "text/event-stream" and status < 300
        return httpx2.Response(
            status,
            headers=[(key, value) for key, value in response.raw_headers],
            stream=_BodyStream(
                response,
                max_bytes=self.max_bytes,
                is_events=is_events,
                request_id=find_request_id(request.content) if is_post and status < 300 else None,
            ),
        )

    async def _convert_failure(self, response: aiohttp.ClientResponse) -> httpx2.Response:
        """Return a failed response with its JSON-RPC error, or with one that says what its status means."""
        body = _BodyStream(response, max_bytes=self.max_bytes)
        try:
            content = b"".join([chunk async for chunk in body]) if response.content_type == "application/json" else b""
        except httpx2.StreamError as error:
            return _build_error("" if TOO_LARGE in str(error) else BROKEN, str(error))
        finally:
            await body.aclose()
        if b'"jsonrpc"' in content:
            return httpx2.Response(response.status, headers={"Content-Type": "application/json"}, content=content)
        reason, message = explain_status(response.status)
        code = METHOD_NOT_FOUND if response.status == 404 else INTERNAL_ERROR  # as the SDK derives them
        return _build_error("" if _is_about_request(response.status) else UNAVAILABLE, message, reason, code=code)


def _is_about_request(status: int) -> bool:
    """Return whether a status blames the request, and not its address or its time."""
    return status < 500 and status not in (404, 405, 408, 410, 429)


def _wrap_content(content: bytes) -> bytes | io.BytesIO | None:
    # aiohttp sends a file in chunks, and large bytes at once
    return io.BytesIO(content) if len(content) > _MIN_FILE_BYTES else content or None


def _build_error(
    mark: str, message: str, reason: ServerReason | None = None, *, code: int = CONNECTION_CLOSED
) -> httpx2.Response:
    error: dict[str, Any] = {"code": code, "message": message, "data": {"trouble": mark, "reason": reason}}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    return httpx2.Response(502, headers={"Content-Type": "application/json"}, content=body)
