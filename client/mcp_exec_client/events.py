"""Typed events of an execution's stream. Events and values that only a newer gateway has are accepted."""

from typing import Any, Final, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError

from mcp_exec_api.meta import LENIENT
from mcp_exec_api.wire.events import (
    AnyStreamEvent,
    ApprovalEvent,
    ArtifactEvent,
    EndEvent,
    ProgressEvent,
    ResultEvent,
    StatusEvent,
    StreamEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from mcp_exec_client.errors import UnexpectedResponse
from mcp_exec_client.types import describe_invalid

__all__ = [
    "ApprovalEvent",
    "ArtifactEvent",
    "EndEvent",
    "OtherEvent",
    "ProgressEvent",
    "ResultEvent",
    "StatusEvent",
    "StreamedEvent",
    "TextEvent",
    "ToolCallEvent",
    "ToolResultEvent",
    "parse_line",
]


class OtherEvent(StreamEvent):
    """An event of a type that this version of the client does not have. Its fields are attributes."""

    model_config = ConfigDict(extra="allow")

    type: str


StreamedEvent: TypeAlias = AnyStreamEvent | OtherEvent
"""Any event of a stream."""
_ADAPTER: Final[TypeAdapter[Any]] = TypeAdapter(AnyStreamEvent)


def parse_line(line: bytes, *, address: str) -> StreamedEvent:
    """Parse one line of a stream. Raises UnexpectedResponse if it is not an event."""
    try:
        try:
            event: StreamedEvent = _ADAPTER.validate_json(line, extra="ignore", context=LENIENT)
        except ValidationError as error:
            if error.errors(include_input=False, include_url=False)[0]["type"] != "union_tag_invalid":
                raise
            event = OtherEvent.model_validate_json(line, extra="allow")
    except ValidationError as error:
        raise UnexpectedResponse(
            f"{address}: a line of the stream is not an event: {describe_invalid(error)}"
        ) from error
    return event
