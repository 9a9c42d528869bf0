"""Request bodies: read with limits, then parsed strictly.

JSON that Python accepts but other parsers read differently is rejected: duplicate keys, NaN, numbers that the API
server would round, and text that is not valid Unicode.

Bodies are not parameters of the routes, as FastAPI intends: FastAPI reads the whole body before it authenticates the
caller and without a time limit, and parses it into Python values first, which loses duplicate keys and JSON's own
types. It would save 0.03 ms of CPU per creation. Queries, headers and callers are parameters: that costs 0.12 ms more
than parsing them by hand, 0.5 % of a warm run of 25 ms. (ASGI calls of `POST /v1/executions` with a stub of the API
server in place of the cluster, both versions alternated 80 times with 100 requests each; 0.34 ms by hand.)
"""

import asyncio
import json
import re
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.meta import FieldError, Model, drop_null_fields, field_errors, format_path
from mcp_exec_common.util.weight import weigh
from mcp_exec_gateway.core.http.limits import Reservation
from mcp_exec_gateway.core.http.parameters import find_repeated
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid, invalid_field
from mcp_exec_tools.stored_json import find_surrogate, find_unstorable

FIELDS_SET_LATER: Final = ("cancelRequested", "approvals")
"""Fields of a spec that a creation cannot set: they request a cancellation and decide on approvals that came later."""
_BODY_SECONDS: Final = 30.0
_DISCARDED_BYTES: Final = 8 * 1024 * 1024
"""Bytes read of a refused body: most clients send the whole body before they read the response."""

CLOSE: Final = (b"connection", b"close")
"""Header of a response that ends its connection."""
_DISCARD_SECONDS: Final = 5.0
"""Time for the rest of a refused body to arrive, before its response and again after it."""

_MAYBE_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
SURROGATE: Final = (
    "it has half of a surrogate pair, such as \\ud800, which UTF-8 does not have; send the whole character, or "
    "bytes as Base64"
)
"""What is wrong with a text that has a lone surrogate."""

ParsedModel = TypeVar("ParsedModel", bound=Model)
ParsedSpec = TypeVar("ParsedSpec", bound=CodeExecutionSpec)


class ClientDisconnected(Exception):
    """The client disconnected before it received a response."""


class _RejectedJson(ValueError):
    """JSON that is syntactically correct and not accepted."""


class _NotFinite(_RejectedJson):
    """NaN or an infinity."""


class ArrivingBody:
    """A request's body as it arrives, also after the request was refused.

    Most clients and Envoy send the whole body before they read the response. If a connection is closed while data
    arrives, clients lose the response, and nginx may answer with 502. So before and after a response that ends its
    connection, the rest of the body is read, in bounded time.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._is_complete = False
        """Whether all of it was received, or the client has disconnected."""
        self._is_refused = False
        self._waits = any(name == b"expect" for name, _ in scope["headers"])
        """Whether the client waits for permission to send."""

    async def receive(self) -> Message:
        """Return the next message of the request."""
        message = await self._receive()
        self._is_complete = message["type"] != "http.request" or not message.get("more_body")
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the response."""
        if message["type"] == "http.response.start":
            self._is_refused = CLOSE in message.get("headers", ()) and not self._is_complete
            if self._is_refused and not self._waits:
                await self._discard()
        elif self._is_refused and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            await self._discard()
            message = {"type": "http.response.body"}
        await self._send(message)

    async def _discard(self) -> None:
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                while not self._is_complete and size < _DISCARDED_BYTES:
                    size += len((await self.receive()).get("body", b""))


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client disconnects. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(
    request: Request, *, limit: int, memory: Reservation | None = None, seconds: float = _BODY_SECONDS
) -> bytes:
    """Read the body: at most `limit` bytes, counted as they arrive, within `seconds`. Count it in `memory`.

    Raises HttpProblem or ClientDisconnected.
    """
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        detail = f"the body's media type is {media_type or 'empty'}; send application/json"
        raise HttpProblem("media-type", 415, detail)
    if "expect" in request.headers and int(request.headers.get("content-length", "0")) > limit:
        raise _too_large(limit)  # the client waits for permission to send
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if memory is not None:
                    memory.require(min(size, limit))
                if size <= limit:
                    body += chunk
                elif size > limit + _DISCARDED_BYTES:
                    break
    except TimeoutError:
        detail = f"the body was not complete after {seconds:g} seconds"
        raise HttpProblem("request-timeout", 408, detail, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ClientDisconnected from None
    if size > limit:
        raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> HttpProblem:
    # the rest of the body may stay unread, so the connection cannot be reused
    detail = f"the body has more than {limit} bytes"
    errors = [FieldError(field="body", message=f"at most {limit} bytes are allowed")]
    return HttpProblem("body-too-large", 413, detail, errors=errors, headers={"Connection": "close"})


def parse_spec(model: type[ParsedSpec], body: bytes, memory: Reservation | None = None) -> ParsedSpec:
    """Parse the spec of a new execution as a model of it, and count it in `memory`.

    Raises HttpProblem: 400 for invalid JSON, 422 for an invalid field, 503 if there is not enough memory.
    """
    data, body = _parse_fields(model, body)
    errors = []
    if isinstance(data, dict):
        message = "it cannot be set at creation"
        errors = [FieldError(field=name, message=message) for name in FIELDS_SET_LATER if name in data]
    try:
        # from JSON, so that strict means JSON's types; by alias only, so that there is one spelling
        spec = model.model_validate_json(body, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid(*errors, *field_errors(error, model, hidden=FIELDS_SET_LATER)) from None
    if not errors and (reason := find_unstorable(spec.context)):
        errors = [FieldError(field="context", message=reason)]
    if errors:
        raise invalid(*errors)
    if memory is not None:
        memory.require(weigh([spec.code, spec.context], limit=memory.budget.limit))
    return spec


def parse_model(model: type[ParsedModel], body: bytes) -> ParsedModel:
    """Parse a body as a model. Raises HttpProblem: 400 for invalid JSON, 422 for an invalid field."""
    _, body = _parse_fields(model, body)
    try:
        return model.model_validate_json(body, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid(*field_errors(error, model)) from None


def _parse_fields(model: type[Model], body: bytes) -> tuple[object, bytes]:
    """Return a body's data, and it as JSON, without optional fields that are null. Raises HttpProblem, a 400 or 422."""
    data = parse_json(body)
    if _MAYBE_SURROGATE.search(body) and (place := find_surrogate(data)) is not None:
        raise invalid_field(format_path(place), SURROGATE)
    if b"null" in body and isinstance(data, dict) and drop_null_fields(data, model):
        body = json.dumps(data).encode()
    return data, body


def parse_json(body: bytes) -> object:
    """Parse JSON strictly. Raises HttpProblem, a 400."""
    try:
        if not body.strip():
            raise _RejectedJson("it is empty; send a JSON object, at least {}")
        return json.loads(body.decode(), object_pairs_hook=_build_object, parse_constant=_reject_constant)
    except RecursionError:
        reason = "it is nested too deeply"
    except _NotFinite as error:
        # the body is read a second time to find the place
        reason = find_unstorable(json.loads(body)) or str(error)
    except ValueError as error:
        reason = str(error)
    errors = [FieldError(field="body", message=reason)]
    raise HttpProblem("bad-json", 400, f"the body is not valid JSON: {reason}", errors=errors)


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        repeated = find_repeated(name for name, _ in pairs) or ""
        raise _RejectedJson(f"an object has the key {repeated[:100]!r} twice")
    return members


def _reject_constant(constant: str) -> NoReturn:
    raise _NotFinite(f"{constant} is not a JSON value")
