"""The port for calls from sandboxes: `POST /v1/calls` only. All input is hostile.

A bare ASGI application: a framework would cost as much time as the rest of the broker adds to a call.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from time import time
from traceback import format_tb
from typing import Any, Final

from cachetools import LRUCache

from mcp_exec_api.approvals import Approval
from mcp_exec_api.meta import micro_time
from mcp_exec_broker.calls.call import CallRequest
from mcp_exec_broker.calls.pipeline import CallPipeline
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS, Grant, GrantError, GrantSigner

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_JSON_LINES: Final = (b"content-type", b"application/x-ndjson")
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_FIELDS: Final = frozenset({"id", "tool", "arguments", "timeoutSeconds"})
_MAX_ID: Final = 128
_MAX_TOOL: Final = 512
_MAX_TOKEN: Final = 64 * 1024
_MAX_GRANTS: Final = 4096


class RequestRefused(Exception):
    """A request that is answered with an HTTP error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _ClientClosed(Exception):
    """The client closed the connection."""


class GrantAuthenticator:
    """Authenticates requests by their grants, and caches verified grants."""

    def __init__(self, *, signer: GrantSigner, replica: str, checks_address: bool) -> None:
        self._signer = signer
        self._replica = replica
        self._checks_address = checks_address
        self._verified: LRUCache[str, Grant] = LRUCache(_MAX_GRANTS)

    def authenticate(self, header: bytes, *, peer: str) -> Grant:
        """Return the grant in an Authorization header that came from an address. Raises RequestRefused."""
        scheme, _, token = header.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise RequestRefused(401, "the request has no grant: send Authorization: Bearer GRANT")
        grant = self._verified.get(token)
        if grant is None:
            grant = self._verify(token)
            self._verified[token] = grant
        if grant.expires <= time():
            self._verified.pop(token, None)
            raise RequestRefused(401, "the grant has expired")
        if self._checks_address and peer != grant.pod_address and not _is_same_address(peer, grant.pod_address):
            raise RequestRefused(401, "the grant belongs to the sandbox at another address")
        return grant

    def _verify(self, token: str) -> Grant:
        try:
            grant = self._signer.read_grant(token)
        except GrantError as error:
            raise RequestRefused(401, str(error)) from None
        if self._replica and grant.replica != self._replica:
            raise RequestRefused(401, "the grant belongs to another replica of the broker")
        if grant.expires > time() + MAX_GRANT_SECONDS:  # its account would be forgotten earlier
            raise RequestRefused(401, f"the grant is valid for more than {MAX_GRANT_SECONDS} s")
        return grant


def _is_same_address(one: str, other: str) -> bool:
    """Return whether two texts are the same IP address, also as an IPv4 address mapped to IPv6."""
    try:
        return _parse_address(one) == _parse_address(other)
    except ValueError:
        return False


def _parse_address(text: str) -> IPv4Address | IPv6Address:
    address = ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


@dataclass(kw_only=True, eq=False)
class CallsApi:
    """The ASGI application of the port."""

    authenticator: GrantAuthenticator
    pipeline: CallPipeline
    namespaces: frozenset[str]
    max_body_bytes: int

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        response = _ResponseStream(send)
        try:
            grant = self._authenticate(scope)
            request = parse_request(await self._read_body(receive))
            await self._run_call(grant, request, receive, response)
        except RequestRefused as error:
            await response.refuse(error)
        except _ClientClosed:
            return
        except Exception as error:
            # without its text, which may contain arguments or results
            trace = "".join(format_tb(error.__traceback__))
            log.error("the broker failed in a call", extra={"error": type(error).__name__, "trace": trace})
            await response.refuse(RequestRefused(500, "the broker failed"))

    def _authenticate(self, scope: MutableMapping[str, Any]) -> Grant:
        if scope["path"] != "/v1/calls":
            raise RequestRefused(404, "this port serves only POST /v1/calls")
        if scope["method"] != "POST":
            raise RequestRefused(405, "this port serves only POST /v1/calls")
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        peer = scope.get("client") or ("", 0)
        grant = self.authenticator.authenticate(header, peer=str(peer[0]))
        if grant.namespace not in self.namespaces:
            raise RequestRefused(401, "this broker does not serve the grant's namespace")
        return grant

    async def _read_body(self, receive: Receive) -> bytes:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            return self._check_size(message["body"])
        parts: list[bytes] = []
        size = 0
        while True:
            if message["type"] != "http.request":
                raise _ClientClosed
            parts.append(message["body"])
            size += len(message["body"])
            if size > self.max_body_bytes:
                self._check_size(b"".join(parts))
            if not message.get("more_body"):
                return b"".join(parts)
            message = await receive()

    def _check_size(self, body: bytes) -> bytes:
        if len(body) > self.max_body_bytes:
            raise RequestRefused(413, f"the body has more than {self.max_body_bytes} bytes")
        return body

    async def _run_call(
        self, grant: Grant, request: CallRequest, receive: Receive, response: "_ResponseStream"
    ) -> None:
        task = asyncio.current_task()
        is_client_gone = False

        async def watch_connection() -> None:
            nonlocal is_client_gone
            while (await receive())["type"] != "http.disconnect":
                pass
            is_client_gone = True
            if task is not None:
                task.cancel()

        watching = asyncio.get_running_loop().create_task(watch_connection())
        try:
            line = await self.pipeline.run_call(grant, request, notify_approval=response.send_approval)
            watching.cancel()  # the end of the response wakes it up, too
            await response.finish(line)
        except asyncio.CancelledError:
            if task is None or not is_client_gone or task.uncancel():
                raise
            raise _ClientClosed from None
        finally:
            watching.cancel()


def parse_request(body: bytes) -> CallRequest:
    """Parse the body of a request. Raises RequestRefused."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestRefused(400, "the body is not JSON") from None
    if not isinstance(fields, dict):
        raise RequestRefused(400, "the body is not a JSON object")
    if unknown := fields.keys() - _FIELDS:
        raise RequestRefused(
            400, f"field {str(min(unknown))[:100]!r} is unknown; allowed are {', '.join(sorted(_FIELDS))}"
        )
    id, tool, seconds = fields.get("id"), fields.get("tool"), fields.get("timeoutSeconds")
    arguments = fields.get("arguments", {})
    if not isinstance(id, str) or not 0 < len(id) <= _MAX_ID:
        raise RequestRefused(400, f"id: must be a text of 1 to {_MAX_ID} characters")
    if not isinstance(tool, str) or not 0 < len(tool) <= _MAX_TOOL:
        raise RequestRefused(400, f"tool: must be a text of 1 to {_MAX_TOOL} characters")
    if not isinstance(arguments, dict):
        raise RequestRefused(400, "arguments: must be an object")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0):
        raise RequestRefused(400, "timeoutSeconds: must be a number above 0")
    return CallRequest(id=id, tool=tool, arguments=arguments, size=len(body), timeout_seconds=seconds)


class _ResponseStream:
    """The response to one request, which starts with its first line."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False

    async def send_approval(self, approval: Approval) -> None:
        """Send the line of a pending approval."""
        line = {
            "type": "approval",
            "id": approval.id,
            "tool": approval.tool,
            "expiresAt": micro_time(approval.expires_at),
        }
        if not self._started:
            self._started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": [_JSON_LINES]})
        await self._send({"type": "http.response.body", "body": json.dumps(line).encode() + b"\n", "more_body": True})

    async def finish(self, line: bytes) -> None:
        """Send the last line."""
        if not self._started:
            self._started = True
            headers = [_JSON_LINES, (b"content-length", b"%d" % len(line))]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": line})

    async def refuse(self, error: RequestRefused) -> None:
        """Send an error status; if the response has started, end it without its last line."""
        if self._started:
            with contextlib.suppress(OSError):
                await self._send({"type": "http.response.body", "body": b""})
            return
        body = f"{error}\n".encode()
        headers = [_TEXT, (b"content-length", b"%d" % len(body))]
        if error.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if error.status == 413:
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
