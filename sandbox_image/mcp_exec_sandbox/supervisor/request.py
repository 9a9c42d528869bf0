"""The body of `POST /v1/execution`, checked."""

from dataclasses import dataclass
from typing import Any

from mcp_exec_sandbox.supervisor.runner import parse_object
from mcp_exec_sandbox.supervisor.settings import MIB

MAX_OUTPUT_BYTES = 16 * MIB
MAX_TIMEOUT_SECONDS = 86_400
MAX_ID_CHARACTERS = 256
_FIELDS = ("id", "code", "context", "timeoutSeconds", "outputBytes")


class InvalidRequest(Exception):
    """The body can't be accepted; the text names the field."""


@dataclass(frozen=True, kw_only=True)
class ExecutionRequest:
    """What is to be run: `timeout_seconds` of wall time, at most `output_bytes` kept of each stream and the result."""

    id: str
    code: str
    context: dict[str, Any]
    timeout_seconds: float
    output_bytes: int

    @classmethod
    def from_body(cls, body: bytes) -> "ExecutionRequest":
        """Read the body.

        Raises:
            InvalidRequest: not a JSON object, a field is missing, unknown or wrong.
        """
        fields = parse_object(body)
        if fields is None:
            raise InvalidRequest("the body must be a JSON object")
        for name in fields:
            if name not in _FIELDS:
                raise InvalidRequest(f"{name[:100]}: unknown field")
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
        )


def _timeout(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MAX_TIMEOUT_SECONDS:
        return float(value)
    raise InvalidRequest(f"timeoutSeconds: must be a number above 0 and at most {MAX_TIMEOUT_SECONDS}")


def _output_bytes(value: object) -> int:
    if type(value) is int and 0 <= value <= MAX_OUTPUT_BYTES:
        return value
    raise InvalidRequest(f"outputBytes: must be an integer from 0 to {MAX_OUTPUT_BYTES}")
