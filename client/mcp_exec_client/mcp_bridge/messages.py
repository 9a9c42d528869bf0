"""JSON-RPC messages of a client, and the headers that streamable HTTP has for them."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from mcp_exec_api.constants import IDEMPOTENCY_META

Object = dict[str, Any]
RequestId = int | str

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
TRY_LATER: Final = -32000
CANCELLED: Final = "notifications/cancelled"
_VERSION_META: Final = "io.modelcontextprotocol/protocolVersion"
_NAMES: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Parameter that the header Mcp-Name repeats, by method."""
_PLAIN: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_ENCODED: Final = re.compile(r"=\?base64\?.*\?=")


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
