"""The body of `POST /v1/execution`, checked."""

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mcp_exec_sandbox.supervisor.runner_process import parse_object
from mcp_exec_sandbox.supervisor.settings import MIB

MAX_OUTPUT_BYTES = 16 * MIB
MAX_TIMEOUT_SECONDS = 86_400
MAX_ID_CHARACTERS = 256
MAX_TOKEN_CHARACTERS = 16_384
MAX_PATTERNS = 1000
MAX_PATTERN_CHARACTERS = 512
_FIELDS = ("id", "code", "context", "timeoutSeconds", "outputBytes", "tools")
_TOOL_FIELDS = ("url", "token", "allow", "wrappers")


class InvalidRequest(Exception):
    """The body can't be accepted; the text names the field."""


def read_object(body: bytes, known: Collection[str]) -> dict[str, Any]:
    """The fields of a body. Raises InvalidRequest where it is no JSON object, or has a field that is not known."""
    fields = parse_object(body)
    if fields is None:
        raise InvalidRequest("the body must be a JSON object")
    for name in fields:
        if name not in known:
            raise InvalidRequest(f"{name[:100]}: unknown field")
    return fields


@dataclass(frozen=True, kw_only=True)
class ToolAccess:
    """How the code may call tools: the broker's address, the execution's grant, the patterns that are allowed."""

    url: str
    token: str
    allow: tuple[str, ...]

    @classmethod
    def from_field(cls, value: object) -> "ToolAccess":
        """Read the field `tools`. Raises InvalidRequest."""
        if not isinstance(value, dict):
            raise InvalidRequest("tools: must be an object")
        for name in value:
            if name not in _TOOL_FIELDS:
                raise InvalidRequest(f"tools.{name[:100]}: unknown field")
        url, token, allow, wrappers = (value.get(name) for name in _TOOL_FIELDS)
        if not isinstance(url, str) or not _is_address(url):
            raise InvalidRequest("tools.url: must be http://IP:PORT")
        if not isinstance(token, str) or not re.fullmatch(rf"[!-~]{{1,{MAX_TOKEN_CHARACTERS}}}", token):
            raise InvalidRequest(f"tools.token: must be 1 to {MAX_TOKEN_CHARACTERS} visible ASCII characters")
        if not isinstance(allow, list) or len(allow) > MAX_PATTERNS or not all(_is_pattern(each) for each in allow):
            raise InvalidRequest(f"tools.allow: must be at most {MAX_PATTERNS} patterns such as SERVER.TOOL")
        if wrappers is not None and not isinstance(wrappers, str):
            raise InvalidRequest("tools.wrappers: must be a string or null")
        return cls(url=url, token=token, allow=tuple(allow))

    def to_message(self) -> dict[str, Any]:
        """What the runner is told."""
        return {"url": self.url, "token": self.token, "allow": list(self.allow)}

    def __repr__(self) -> str:
        return f"ToolAccess(url={self.url!r}, allow={self.allow!r})"


@dataclass(frozen=True, kw_only=True)
class ExecutionRequest:
    """What is to be run: `timeout_seconds` of wall time, at most `output_bytes` kept of each stream and the result."""

    id: str
    code: str
    context: dict[str, Any]
    timeout_seconds: float
    output_bytes: int
    tools: ToolAccess | None = None

    @classmethod
    def from_body(cls, body: bytes) -> "ExecutionRequest":
        """Read the body.

        Raises:
            InvalidRequest: not a JSON object, a field is missing, unknown or wrong.
        """
        fields = read_object(body, _FIELDS)
        identifier, code, context = fields.get("id"), fields.get("code"), fields.get("context", {})
        if not isinstance(identifier, str) or not 1 <= len(identifier) <= MAX_ID_CHARACTERS:
            raise InvalidRequest(f"id: must be a string of 1 to {MAX_ID_CHARACTERS} characters")
        if not isinstance(code, str):
            raise InvalidRequest("code: must be a string")
        if not isinstance(context, dict):
            raise InvalidRequest("context: must be an object")
        return cls(
            id=identifier,
            code=code,
            context=context,
            timeout_seconds=_timeout(fields.get("timeoutSeconds")),
            output_bytes=_output_bytes(fields.get("outputBytes")),
            tools=None if fields.get("tools") is None else ToolAccess.from_field(fields["tools"]),
        )


def _timeout(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MAX_TIMEOUT_SECONDS:
        return float(value)
    raise InvalidRequest(f"timeoutSeconds: must be a number above 0 and at most {MAX_TIMEOUT_SECONDS}")


def _output_bytes(value: object) -> int:
    if type(value) is int and 0 <= value <= MAX_OUTPUT_BYTES:
        return value
    raise InvalidRequest(f"outputBytes: must be an integer from 0 to {MAX_OUTPUT_BYTES}")


def _is_address(url: str) -> bool:
    """Whether the URL is that of an IP address and a port: a sandbox has no DNS."""
    try:
        parts = urlsplit(url)
        ipaddress.ip_address(parts.hostname or "")
        plain = parts.scheme == "http" and parts.port is not None and parts.path in ("", "/")
    except ValueError:
        return False
    return plain and not (parts.query or parts.fragment or parts.username is not None)


def _is_pattern(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_PATTERN_CHARACTERS and "." in value
