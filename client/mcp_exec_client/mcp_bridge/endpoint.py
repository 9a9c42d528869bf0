"""One exchange with the gateway's MCP endpoint: a message out, the messages of the response in."""

import base64
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import httpx

from mcp_exec_api.constants import IDEMPOTENCY_META
from mcp_exec_client.errors import UnexpectedResponse
from mcp_exec_client.json_body import encode_body
from mcp_exec_client.transport import Query, Transport, read_bounded, read_problem

Object = dict[str, Any]
RequestId = int | str
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
TRY_LATER: Final = -32000
CANCELLED: Final = "notifications/cancelled"
_VERSION_META: Final = "io.modelcontextprotocol/protocolVersion"
_NAMES: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Parameter that the header Mcp-Name repeats, by method."""
_PLAIN: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_ENCODED: Final = re.compile(r"=\?base64\?.*\?=")
_PATH: Final = "/mcp"
_ACCEPT: Final = "application/json, text/event-stream"
_SILENT_SECONDS: Final = 60.0
"""Longest time without data: the gateway sends something every 15 s."""
_MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
_ERROR_STATUSES: Final = (400, 404)
"""Statuses of responses that may have an error of the protocol as their body."""


class NoMessage(Exception):
    """A line that is no message."""


@dataclass(frozen=True, kw_only=True)
class ClientMessage:
    """One message from the client."""

    body: Object
    kind: Literal["request", "notification", "response"]

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Parse a line. Raises NoMessage."""
        try:
            body = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise NoMessage(str(error)) from None
        if not isinstance(body, dict) or not isinstance(body.get("params", {}), dict):
            raise NoMessage("a message is one JSON object, with an object as params")
        if not isinstance(body.get("method"), str):
            return cls(body=body, kind="response")
        return cls(body=body, kind="request" if "id" in body else "notification")

    @property
    def method(self) -> str:
        """Method of a request or notification; empty for a response."""
        return str(self.body.get("method", ""))

    @property
    def id(self) -> RequestId | None:
        """Id of a request or response; None if it is no integer or text."""
        request_id = self.body.get("id")
        return request_id if isinstance(request_id, int | str) else None

    @property
    def params(self) -> Object:
        """Parameters."""
        params: Object = self.body.get("params") or {}
        return params

    @property
    def modern_version(self) -> str | None:
        """The revision that a request without a session names; None in revisions with sessions."""
        meta = self.params.get("_meta")
        version = meta.get(_VERSION_META) if isinstance(meta, dict) else None
        return version if isinstance(version, str) else None

    @property
    def runs_code(self) -> bool:
        """Whether the message is a call of `run_code`, which the gateway can repeat safely."""
        return self.method == "tools/call" and self.params.get("name") == "run_code"

    @property
    def is_repeatable(self) -> bool:
        """Whether the message may be sent again although the gateway may have received it."""
        return self.runs_code or self.method != "tools/call"

    def with_idempotency_key(self, key: str) -> Self:
        """Return the message with a key that makes a repetition safe, unless it has one."""
        meta = self.params.get("_meta")
        meta = {IDEMPOTENCY_META: key, **(meta if isinstance(meta, dict) else {})}
        return type(self)(body={**self.body, "params": {**self.params, "_meta": meta}}, kind=self.kind)

    def list_headers(self) -> dict[str, str]:
        """Return the headers of a request without a session."""
        version, name = self.modern_version, self.params.get(_NAMES.get(self.method, ""))
        headers = {"MCP-Protocol-Version": _encode(version)} if version else {}
        headers["Mcp-Method"] = _encode(self.method)
        return headers | ({"Mcp-Name": _encode(name)} if isinstance(name, str) else {})


def _encode(value: str) -> str:
    """Return a value that a header can carry: as it is, or as the protocol encodes other text."""
    if not value or (_PLAIN.fullmatch(value) and not _ENCODED.fullmatch(value)):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def is_response_to(message: Mapping[str, Any], request_id: RequestId | None) -> bool:
    """Return whether a message from the gateway is the response to a request."""
    return "method" not in message and message.get("id") == request_id


def build_error(request_id: RequestId | None, code: int, text: str, data: Any = None) -> Object:
    """Return an error response."""
    error = {"code": code, "message": text, **({"data": data} if data is not None else {})}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


@dataclass(kw_only=True)
class Reception:
    """State of a response so far."""

    headers: Mapping[str, str]
    last_event_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class McpEndpoint:
    """The endpoint with its parameters."""

    transport: Transport
    query: Query

    async def exchange(
        self, body: Object, *, headers: Mapping[str, str], reception: Reception
    ) -> AsyncGenerator[Object, None]:
        """Post a message and yield those of the response. Raises McpExecError."""
        async for message in self._receive("POST", encode_body(body), headers, reception):
            yield message

    async def listen(self, *, headers: Mapping[str, str], reception: Reception) -> AsyncGenerator[Object, None]:
        """Yield the messages of a GET: of a stream that is resumed, or those that belong to no request.

        Raises McpExecError.
        """
        async for message in self._receive("GET", None, headers, reception):
            yield message

    async def _receive(
        self, method: str, content: bytes | None, headers: Mapping[str, str], reception: Reception
    ) -> AsyncGenerator[Object, None]:
        address = f"{method} {self.transport.url}{_PATH}"
        async with self.transport.open(
            method,
            _PATH,
            query=self.query,
            content=content,
            headers={"Accept": _ACCEPT, **headers},
            expected=_ERROR_STATUSES,
            read_seconds=_SILENT_SECONDS,
        ) as response:
            reception.headers = response.headers
            media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if media_type == "text/event-stream":
                async for message in _read_events(response, address, reception):
                    yield message
            elif media_type == "application/json":
                yield _parse(await read_bounded(response, _MAX_EVENT_BYTES, address), address)
            elif response.status_code >= 300:
                raise await read_problem(response, address)


async def _read_events(response: httpx.Response, address: str, reception: Reception) -> AsyncIterator[Object]:
    """Yield the messages of server-sent events, and note their ids."""
    rest, data = bytearray(), bytearray()
    event_id: str | None = None
    async for chunk in response.aiter_raw():
        rest += chunk
        if len(rest) + len(data) > _MAX_EVENT_BYTES:
            raise UnexpectedResponse(f"{address}: an event has more than {_MAX_EVENT_BYTES} bytes")
        if b"\n" not in chunk:  # a long line is split once, not again with each of its parts
            continue
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"id" and not line.startswith(b":"):
                event_id = value.decode(errors="replace")
            elif name == b"data":
                data += value
            elif not line.rstrip(b"\r"):
                reception.last_event_id = event_id or reception.last_event_id
                if data:
                    yield _parse(bytes(data), address)
                data.clear()


def _parse(content: bytes, address: str) -> Object:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise UnexpectedResponse(f"{address}: the response is no JSON-RPC message; is this a gateway?")
    return message
