"""The port of calls from sandboxes: `POST /v1/calls`, and nothing else. What comes in is hostile.

A bare ASGI application: a framework would cost as much as all the rest of what the broker adds to a call.
"""

import asyncio
import contextlib
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from time import time
from traceback import format_tb
from typing import Any, Final

from mcp_exec_api.approvals import Approval
from mcp_exec_api.meta import micro_time
from mcp_exec_broker.calls.call import CallRequest
from mcp_exec_broker.calls.pipeline import CallPipeline
from mcp_exec_common.broker.grants import Grant, GrantError, GrantSigner

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_JSON: Final = (b"content-type", b"application/x-ndjson")
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_FIELDS: Final = frozenset({"id", "tool", "arguments", "timeoutSeconds"})
_MAX_ID: Final = 128
_MAX_TOOL: Final = 512
_MAX_TOKEN: Final = 64 * 1024


class RequestRefused(Exception):
    """The request gets another answer than a call's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Gone(Exception):
    """The client has closed the connection."""


@dataclass(kw_only=True, eq=False)
class GrantAuthenticator:
    """Reads grants; what was read is remembered until it is void."""

    signer: GrantSigner
    keep: int = 4096
    _read: OrderedDict[str, Grant] = field(default_factory=OrderedDict)

    def of(self, header: bytes) -> Grant:
        """What an Authorization header grants. Raises Refused."""
        scheme, _, token = header.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise RequestRefused(401, "a grant is needed: Authorization: Bearer GRANT")
        grant = self._read.get(token)
        if grant is None:
            try:
                grant = self.signer.read_grant(token)
            except GrantError as error:
                raise RequestRefused(401, str(error)) from None
            self._read[token] = grant
            while len(self._read) > self.keep:
                self._read.popitem(last=False)
        if grant.expires <= time():
            self._read.pop(token, None)
            raise RequestRefused(401, "the grant has expired")
        return grant


@dataclass(kw_only=True, eq=False)
class CallsApi:
    """The application."""

    grants: GrantAuthenticator
    calls: CallPipeline
    namespaces: frozenset[str]
    max_body_bytes: int

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        answer = _Answer(send)
        try:
            grant = self._grant(scope)
            asked = parse_request(await self._body(receive))
            await self._call(grant, asked, receive, answer)
        except RequestRefused as refused:
            await answer.refuse(refused)
        except _Gone:
            return
        except Exception as error:
            # not its text: that may have arguments or results in it
            trace = "".join(format_tb(error.__traceback__))
            log.error("a call failed in the broker itself", extra={"error": type(error).__name__, "trace": trace})
            await answer.refuse(RequestRefused(500, "the broker failed"))

    def _grant(self, scope: MutableMapping[str, Any]) -> Grant:
        if scope["path"] != "/v1/calls":
            raise RequestRefused(404, "there is POST /v1/calls, and nothing else")
        if scope["method"] != "POST":
            raise RequestRefused(405, "there is POST /v1/calls, and nothing else")
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        grant = self.grants.of(header)
        if grant.namespace not in self.namespaces:
            raise RequestRefused(401, "the grant's namespace is not served here")
        return grant

    async def _body(self, receive: Receive) -> bytes:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            return self._bounded(message["body"])
        parts: list[bytes] = []
        size = 0
        while True:
            if message["type"] != "http.request":
                raise _Gone
            parts.append(message["body"])
            size += len(message["body"])
            if size > self.max_body_bytes:
                self._bounded(b"".join(parts))
            if not message.get("more_body"):
                return b"".join(parts)
            message = await receive()

    def _bounded(self, body: bytes) -> bytes:
        if len(body) > self.max_body_bytes:
            raise RequestRefused(413, f"the body has more than {self.max_body_bytes} bytes")
        return body

    async def _call(self, grant: Grant, asked: CallRequest, receive: Receive, answer: "_Answer") -> None:
        task = asyncio.current_task()
        gone = False

        async def watch() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                pass
            gone = True
            if task is not None:
                task.cancel()

        watching = asyncio.get_running_loop().create_task(watch())
        try:
            line = await self.calls.make(grant, asked, notice=answer.notice)
            watching.cancel()  # sending the answer wakes it up, too
            await answer.finish(line)
        except asyncio.CancelledError:
            if task is None or not gone or task.uncancel():
                raise
            raise _Gone from None
        finally:
            watching.cancel()


def parse_request(body: bytes) -> CallRequest:
    """What a body asks for. Raises Refused."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestRefused(400, "the body is no JSON") from None
    if not isinstance(given, dict):
        raise RequestRefused(400, "the body is no JSON object")
    if unknown := given.keys() - _FIELDS:
        raise RequestRefused(400, f"{str(min(unknown))[:100]!r} is unknown; there are {', '.join(sorted(_FIELDS))}")
    id, tool, seconds = given.get("id"), given.get("tool"), given.get("timeoutSeconds")
    arguments = given.get("arguments", {})
    if not isinstance(id, str) or not 0 < len(id) <= _MAX_ID:
        raise RequestRefused(400, f"id: a text of 1 to {_MAX_ID} characters is needed")
    if not isinstance(tool, str) or not 0 < len(tool) <= _MAX_TOOL:
        raise RequestRefused(400, f"tool: a text of 1 to {_MAX_TOOL} characters is needed")
    if not isinstance(arguments, dict):
        raise RequestRefused(400, "arguments: an object is needed")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0):
        raise RequestRefused(400, "timeoutSeconds: a number above 0 is needed")
    return CallRequest(id=id, tool=tool, arguments=arguments, size=len(body), timeout_seconds=seconds)


class _Answer:
    """The answer to one request: it begins with the first line that there is."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False

    async def notice(self, approval: Approval) -> None:
        """Tells that the call waits for consent."""
        line = {
            "type": "approval",
            "id": approval.id,
            "tool": approval.tool,
            "expiresAt": micro_time(approval.expires_at),
        }
        if not self._begun:
            self._begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": [_JSON]})
        await self._send({"type": "http.response.body", "body": json.dumps(line).encode() + b"\n", "more_body": True})

    async def finish(self, line: bytes) -> None:
        """Sends the last line."""
        if not self._begun:
            self._begun = True
            headers = [_JSON, (b"content-length", b"%d" % len(line))]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": line})

    async def refuse(self, refused: RequestRefused) -> None:
        """Sends another status, where nothing was sent yet; else the answer ends without its last line."""
        if self._begun:
            with contextlib.suppress(OSError):
                await self._send({"type": "http.response.body", "body": b""})
            return
        body = f"{refused}\n".encode()
        headers = [_TEXT, (b"content-length", b"%d" % len(body))]
        if refused.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if refused.status == 413:
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
