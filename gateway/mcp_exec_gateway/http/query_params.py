"""Query parameters of each route. One that is not known is refused, so that a typing error does not go unseen."""

import re
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.meta import FieldError, field_errors
from mcp_exec_gateway.executions.wait import DEFAULT_WAIT_SECONDS
from mcp_exec_gateway.http.problems import invalid, invalid_field
from mcp_exec_tools.search.index import DEFAULT_LIMIT, MAX_LIMIT, MAX_QUERY, DetailLevel

_IDEMPOTENCY_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")


class Query(BaseModel):
    """What every route takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Annotated[
        str | None,
        Field(
            min_length=1,
            description="The namespace, where it is not the caller's own. An API key has its own alone.",
        ),
    ] = None


class CreateQuery(Query):
    """How to create."""

    wait: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="Seconds to wait for the end; 0 answers at once with 202 and a `Location`.",
        ),
    ] = DEFAULT_WAIT_SECONDS
    on_disconnect: Annotated[
        Literal["cancel", "continue"],
        Field(
            alias="onDisconnect",
            description="What becomes of the execution when the client goes away while it waits, "
            "with an Idempotency-Key too: a client that means to ask again sends `continue`.",
        ),
    ] = "cancel"


class GetQuery(Query):
    """How to get one."""

    wait: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="Seconds to wait for the end, where it did not end yet."),
    ] = 0


class ListQuery(Query):
    """What to list."""

    label_selector: Annotated[
        str | None, Field(alias="labelSelector", max_length=2048, description="A Kubernetes label selector.")
    ] = None
    phase: Annotated[
        Phase | None,
        Field(
            description="Only executions in this phase. They are picked page by page, "
            "so a page may have fewer than `limit`, even none, and still be followed by others."
        ),
    ] = None
    limit: Annotated[int, Field(ge=1, le=500, description="The most executions on a page.")] = 100
    continue_token: Annotated[
        str | None, Field(alias="continue", max_length=4096, description="The `continue` of the page before.")
    ] = None


class EventsQuery(Query):
    """From where to stream."""

    last_event_id: Annotated[
        str | None,
        Field(
            alias="lastEventId",
            description="The id of the last event that was received, for clients that can't send `Last-Event-ID`.",
        ),
    ] = None


class SearchQuery(Query):
    """What tools to find."""

    query: Annotated[
        str, Field(max_length=MAX_QUERY, description="What somebody wants to do; empty lists all tools.")
    ] = ""
    detail_level: Annotated[DetailLevel, Field(description="How much is told of each tool.")] = "name_only"
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="The most tools.")] = DEFAULT_LIMIT


class AuditQuery(Query):
    """Which records of tool calls."""

    execution: Annotated[str | None, Field(min_length=1, max_length=253, description="The execution's name.")] = None
    tool: Annotated[str | None, Field(min_length=1, max_length=256, description="SERVER.TOOL, or SERVER.")] = None
    outcome: Annotated[str | None, Field(min_length=1, max_length=64, description="How the call ended.")] = None
    since: Annotated[AwareDatetime | None, Field(description="Only calls from this moment on (RFC 3339).")] = None
    until: Annotated[AwareDatetime | None, Field(description="Only calls before this moment (RFC 3339).")] = None
    limit: Annotated[int, Field(ge=1, le=500, description="The most records on a page.")] = 100
    cursor: Annotated[str | None, Field(max_length=8192, description="The `next` of the page before.")] = None


Q = TypeVar("Q", bound=Query)


def parse_query(model: type[Q], request: Request) -> Q:
    """The request's query parameters. Raises Problem with each that is wrong.

    FastAPI could do this as well; it takes a tenth of a request's whole time to.
    """
    given = request.query_params.multi_items()
    found = dict(given)
    if len(found) != len(given):
        names = [name for name, _ in given]
        raise invalid_field(next(name for name in names if names.count(name) > 1), "given twice")
    try:
        return model.model_validate(found)
    except ValidationError as error:
        unknown = "unknown query parameter"
        raise invalid(
            *(
                FieldError(field=wrong.field, message=unknown if wrong.message == "unknown field" else wrong.message)
                for wrong in field_errors(error)
            )
        ) from None


def parse_idempotency_key(request: Request) -> str | None:
    """The request's Idempotency-Key. Raises Problem where it is none."""
    key = request.headers.get("idempotency-key")
    if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
        raise invalid_field("Idempotency-Key", "1 to 255 printable ASCII characters are allowed")
    return key
