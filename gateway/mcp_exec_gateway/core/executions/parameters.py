"""Parameters and headers of the routes of executions."""

import re
from typing import Annotated, Final, Literal

from fastapi import Header
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from mcp_exec_api.code_execution import Phase, UseCase
from mcp_exec_gateway.core.http.parameters import NamespaceQuery

DEFAULT_WAIT_SECONDS: Final = 30.0


_IDEMPOTENCY_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")


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


Include = Literal["code"]
"""Parts of an execution that a response has on request only."""


class GetQuery(NamespaceQuery):
    """Parameters of getting an execution."""

    wait: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="Seconds to wait for the end of an unfinished execution."),
    ] = 0
    include: Annotated[
        Include | None, Field(description="What the response has in addition: `code`, the code of the execution.")
    ] = None


class CancelQuery(NamespaceQuery):
    """Parameters of cancelling or deleting an execution."""

    purge: Annotated[
        bool, Field(description="Delete an execution that has ended, with its artifacts, instead of cancelling it.")
    ] = False


class ListQuery(NamespaceQuery):
    """Parameters of listing executions."""

    label_selector: Annotated[
        str | None,
        Field(
            alias="labelSelector",
            max_length=2048,
            description="Kubernetes label selector, such as `report=weekly,mcp-exec.dev/use-case!=polling`.",
        ),
    ] = None
    phase: Annotated[Phase | None, Field(description="Only executions in this phase.")] = None
    caller: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=512,
            description="Only executions of this caller: the name of an API key or ServiceAccount, or a `caller` of a "
            "response.",
        ),
    ] = None
    conversation: Annotated[
        str | None, Field(min_length=1, max_length=63, description="Only executions of this conversation.")
    ] = None
    use_case: Annotated[UseCase | None, Field(alias="useCase", description="Only executions with this use case.")] = (
        None
    )
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


def is_idempotency_key(key: str) -> bool:
    """Return whether a text can be an Idempotency-Key."""
    return _IDEMPOTENCY_KEY.fullmatch(key) is not None


def _check_idempotency_key(key: str) -> str:
    if not is_idempotency_key(key):
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
