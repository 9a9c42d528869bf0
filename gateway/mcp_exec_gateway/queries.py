"""Query parameters of each route. One that is not known is refused, so that a typing error does not go unseen."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from mcp_exec_api.execution import Phase
from mcp_exec_gateway.waits import DEFAULT_WAIT_SECONDS


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
            max_length=64,
            description="The id of the last event that was received, for clients that can't send `Last-Event-ID`.",
        ),
    ] = None
