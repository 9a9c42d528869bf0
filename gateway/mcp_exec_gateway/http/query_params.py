"""Query parameters and headers of the routes. Unknown and repeated parameters are rejected: they are usually typos."""

import re
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from fastapi import Header
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from mcp_exec_api.code_execution import Phase
from mcp_exec_gateway.http.problems import invalid_field
from mcp_exec_gateway.http.repeated import find_repeated
from mcp_exec_tools.search.index import DEFAULT_LIMIT, MAX_LIMIT, MAX_QUERY, DetailLevel

DEFAULT_WAIT_SECONDS: Final = 30.0
_IDEMPOTENCY_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")


class NamespaceQuery(BaseModel):
    """Parameters of every route with a caller."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Namespace of the request; the default is the caller's own. An API key works in its own only.",
        ),
    ] = None


class CreateQuery(NamespaceQuery):
    """Parameters of creating an execution."""

    wait: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="Seconds to wait for the end of the execution. With 0, the response is an immediate 202 with "
            "a `Location`.",
        ),
    ] = DEFAULT_WAIT_SECONDS
    on_disconnect: Annotated[
        Literal["cancel", "continue"],
        Field(
            alias="onDisconnect",
            description="What happens to the execution if the client disconnects while it waits. `cancel` applies "
            "with an Idempotency-Key too; a client that intends to retry sends `continue`.",
        ),
    ] = "cancel"


class GetQuery(NamespaceQuery):
    """Parameters of getting an execution."""

    wait: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="Seconds to wait for the end of an unfinished execution."),
    ] = 0


class ListQuery(NamespaceQuery):
    """Parameters of listing executions."""

    label_selector: Annotated[
        str | None, Field(alias="labelSelector", max_length=2048, description="Kubernetes label selector.")
    ] = None
    phase: Annotated[
        Phase | None,
        Field(
            description="Only executions in this phase. The filter applies to each page, so a page can have fewer "
            "than `limit` items, or none, and still have a `continue`."
        ),
    ] = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of executions on a page.")] = 100
    continue_token: Annotated[
        str | None, Field(alias="continue", max_length=4096, description="The `continue` of the previous page.")
    ] = None


class EventsQuery(NamespaceQuery):
    """Parameters of following an execution's events."""

    last_event_id: Annotated[
        str | None,
        Field(
            alias="lastEventId",
            description="Id of the last event received, for clients that cannot send `Last-Event-ID`.",
        ),
    ] = None


class SearchQuery(NamespaceQuery):
    """Parameters of a search for tools."""

    query: Annotated[
        str, Field(max_length=MAX_QUERY, description="What the tools should do; an empty query lists all tools.")
    ] = ""
    detail_level: Annotated[DetailLevel, Field(description="Amount of detail for each tool.")] = "name_only"
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Maximum number of tools.")] = DEFAULT_LIMIT


def _check_range(moment: datetime) -> datetime:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("time_range", "the time is before year 1 or after year 9999 in UTC") from None
    return moment


Moment = Annotated[AwareDatetime, AfterValidator(_check_range)]
"""A time with a zone, which can be written in UTC."""


class AuditQuery(NamespaceQuery):
    """Parameters of listing audit records of tool calls."""

    execution: Annotated[str | None, Field(min_length=1, max_length=253, description="Name of an execution.")] = None
    tool: Annotated[
        str | None, Field(min_length=1, max_length=256, description="A tool as SERVER.TOOL, or a server as SERVER.")
    ] = None
    outcome: Annotated[str | None, Field(min_length=1, max_length=64, description="Outcome of the call.")] = None
    since: Annotated[Moment | None, Field(description="Only calls at or after this time (RFC 3339).")] = None
    until: Annotated[Moment | None, Field(description="Only calls before this time (RFC 3339).")] = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of records on a page.")] = 100
    cursor: Annotated[str | None, Field(max_length=8192, description="The `next` of the previous page.")] = None


def reject_repeated_parameters(request: Request) -> None:
    """Raise HttpProblem if a query parameter is present twice. FastAPI would take the last one."""
    repeated = find_repeated(name for name, _ in request.query_params.multi_items())
    if repeated is not None:
        raise invalid_field(repeated, "the query parameter is present twice; send it once")


def _check_idempotency_key(key: str) -> str:
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise PydanticCustomError("idempotency_key", "1 to 255 printable ASCII characters are allowed")
    return key


IdempotencyKey = Annotated[
    str | None,
    AfterValidator(lambda key: key if key is None else _check_idempotency_key(key)),
    Header(
        alias="Idempotency-Key",
        description="Makes a retry safe: while the execution exists, the same key of the same caller with the same "
        "body refers to that execution. The same key with another body is rejected.",
        json_schema_extra={"minLength": 1, "maxLength": 255, "pattern": r"^[\x20-\x7e]+$"},
    ),
]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Id of the last event received.")]
