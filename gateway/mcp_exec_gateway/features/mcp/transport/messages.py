"""JSON-RPC messages of a request's body, and the revision that they belong to."""

import re
import secrets
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from mcp_types import (
    DEFAULT_NEGOTIATED_VERSION,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    RequestId,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.core.http.json import json_response
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.http.request_body import parse_json
from mcp_exec_gateway.features.mcp.sdk import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    as_request_id,
    classify_inbound_request,
    find_duplicated_routing_header,
    progress_token_from_params,
    unsupported_protocol_version_rejection,
)

CHANGES_METHOD: Final = "mcp-exec/changes"
"""Method that stands for a GET without `Last-Event-ID`: a stream of notifications."""
Object = dict[str, Any]
Kind = Literal["request", "notification", "response"]

_REFUSED: Final = re.compile(r"q\s*=\s*0(\.0{0,3})?")
"""Parameter of a media type that a client does not accept."""
_MAX_ID: Final = 256
"""Characters of a request's id and of its progress token, which come back in every event of the response."""


class InvalidMessage(Exception):
    """A body that is no message of the protocol, or a request that its revision does not allow."""

    def __init__(self, code: int, message: str, *, data: Any = None, request_id: RequestId | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data, self.request_id = code, message, data, request_id

    def response(self) -> Response:
        """Build the response: a JSON-RPC error with the status that the protocol assigns to its code."""
        error = format_error(self.code, self.message, self.data)
        body = {"jsonrpc": "2.0", "id": self.request_id, "error": error}
        return json_response(body, status=ERROR_CODE_HTTP_STATUS.get(self.code, 400))


def format_error(code: int, message: str, data: Any = None) -> Object:
    """Return the error object of a response."""
    return {"code": code, "message": message, **({"data": data} if data is not None else {})}


@dataclass(frozen=True, kw_only=True)
class RpcMessage:
    """One message from a client."""

    kind: Kind
    id: RequestId | None
    """Id of a request or a response."""
    method: str
    """Empty for a response."""
    params: Object
    result: Object | None = None
    """Result of a response; None if it reports an error."""


def is_modern(request: Request) -> bool:
    """Return whether a request belongs to a revision without sessions, or claims to belong to an unknown one."""
    version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
    return version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS


_MAX_ACCEPTED: Final = 64
"""Media types of an `Accept` header that are read."""


def read_accepted(request: Request) -> tuple[bool, bool]:
    """Return whether a client accepts JSON, and whether it accepts a stream of events. Without the header, both."""
    header = request.headers.get("accept", "").strip() or "*/*"
    accepted = set()
    for part in header.split(",", _MAX_ACCEPTED)[:_MAX_ACCEPTED]:
        kind, *parameters = (each.strip().lower() for each in part.split(";"))
        if not any(_REFUSED.fullmatch(parameter) for parameter in parameters):
            accepted.add(kind)
    refused = {part.split(";")[0].strip().lower() for part in header.split(",", _MAX_ACCEPTED)} - accepted
    json, events = (
        kind not in refused and bool(accepted & {kind, f"{kind.partition('/')[0]}/*", "*/*"})
        for kind in ("application/json", "text/event-stream")
    )
    return json, events


def parse_message(body: bytes) -> RpcMessage:
    """Parse the body of a POST. Raises InvalidMessage."""
    try:
        data = parse_json(body)
    except HttpProblem as problem:
        raise InvalidMessage(PARSE_ERROR, problem.detail) from None
    if not isinstance(data, dict) or data.get("jsonrpc") != "2.0":
        raise InvalidMessage(INVALID_REQUEST, "the body must be one JSON-RPC 2.0 object; batches are not supported")
    params, method = data.get("params"), data.get("method")
    request_id = _read_id(data)
    if params is not None and not isinstance(params, dict):
        raise InvalidMessage(INVALID_REQUEST, "params must be an object", request_id=request_id)
    if len(str(progress_token_from_params(params) or "")) > _MAX_ID:
        message = f"progressToken must be an integer or a string of at most {_MAX_ID} characters"
        raise InvalidMessage(INVALID_REQUEST, message, request_id=request_id)
    if isinstance(method, str):
        kind: Kind = "request" if "id" in data else "notification"
        return RpcMessage(kind=kind, id=request_id, method=method, params=params or {})
    if method is None and request_id is not None and ("result" in data) != ("error" in data):
        result = data.get("result")
        return RpcMessage(
            kind="response", id=request_id, method="", params={}, result=result if isinstance(result, dict) else None
        )
    raise InvalidMessage(INVALID_REQUEST, "the body is no request, notification or response", request_id=request_id)


def _read_id(data: Object) -> RequestId | None:
    if "id" not in data:
        return None
    request_id = as_request_id(data["id"])
    if request_id is None or len(str(request_id)) > _MAX_ID:
        raise InvalidMessage(INVALID_REQUEST, f"id must be an integer or a string of at most {_MAX_ID} characters")
    return request_id


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """What a request says about its client."""

    version: str
    """The protocol's revision."""
    client_info: Any = None
    client_capabilities: Any = None


def read_modern_envelope(message: RpcMessage, request: Request) -> Envelope:
    """Return the envelope of a request without a session. Raises InvalidMessage if headers and body differ."""
    duplicated = find_duplicated_routing_header(request.headers.items())
    if duplicated is not None:
        raise InvalidMessage(
            HEADER_MISMATCH, f"the header {duplicated} is present twice; send it once", request_id=message.id
        )
    body = {"method": message.method, "params": message.params}
    route = classify_inbound_request(body, headers=dict(request.headers))
    if isinstance(route, InboundLadderRejection):
        # a client of a revision that is not served does not know what the one that is served requires
        if route.code == INVALID_PARAMS and (rejection := _check_version(request)) is not None:
            raise _build_rejection(rejection, message.id)
        raise _build_rejection(route, message.id)
    return Envelope(
        version=route.protocol_version,
        client_info=route.client_info,
        client_capabilities=route.client_capabilities,
    )


def check_modern_version(request: Request) -> None:
    """Raise InvalidMessage if the version header of a notification names a revision that is not served."""
    if (rejection := _check_version(request)) is not None:
        raise _build_rejection(rejection)


def _check_version(request: Request) -> InboundLadderRejection | None:
    return unsupported_protocol_version_rejection(request.headers.get(MCP_PROTOCOL_VERSION_HEADER, ""))


def _build_rejection(rejection: InboundLadderRejection, request_id: RequestId | None = None) -> InvalidMessage:
    text = rejection.message
    if rejection.code == UNSUPPORTED_PROTOCOL_VERSION:
        text += f"; supported are {', '.join((*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS))}"
    return InvalidMessage(rejection.code, text, data=rejection.data, request_id=request_id)


def offers_form_elicitation(capabilities: object) -> bool:
    """Return whether a client can show forms to its user: the capability `elicitation`, with `form` or empty."""
    elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(elicitation, dict) and ("form" in elicitation or not elicitation)


def offers_extension(capabilities: object, extension: str) -> bool:
    """Return whether a client understands an extension, as its capabilities say in each request."""
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return isinstance(extensions, dict) and isinstance(extensions.get(extension), dict)


SESSION_HEADER: Final = "mcp-session-id"
_ID: Final = re.compile(r"(\d{4}-\d\d-\d\d)\.([01])\.[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class Session:
    """One client between its initialization and its end."""

    id: str
    version: str
    """The revision that was negotiated."""
    elicitation: bool
    """Whether the client can show forms to its user."""

    @classmethod
    def create(cls, *, version: str, elicitation: bool) -> Self:
        """Create a session with a new id."""
        session_id = f"{version}.{elicitation:d}.{secrets.token_hex(16)}"
        return cls(id=session_id, version=version, elicitation=elicitation)

    @classmethod
    def read(cls, request: Request) -> Self | None:
        """Return the session of a request, or None if it names none.

        Raises HttpProblem, a 404, for an id that this gateway did not create: the client then initializes again.
        """
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            return None
        match = _ID.fullmatch(session_id)
        if match is None or match[1] not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise HttpProblem("not-found", 404, f"{SESSION_HEADER}: no session of this gateway; initialize again")
        return cls(id=session_id, version=match[1], elicitation=match[2] == "1")


def find_version(request: Request, session: Session | None) -> str:
    """Return the revision of a request: its header's, its session's, or else the one that the protocol assumes."""
    version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
    return version or (session.version if session else DEFAULT_NEGOTIATED_VERSION)
