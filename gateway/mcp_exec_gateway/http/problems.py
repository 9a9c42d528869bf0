"""Problem details (RFC 9457): the body of every answer that is an error."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from mcp_exec_api.meta import FieldError

MEDIA_TYPE: Final = "application/problem+json"

TITLES: Final = {
    "bad-json": "The body is not JSON",
    "unauthenticated": "Authentication is needed",
    "forbidden": "Not allowed",
    "not-found": "Not found",
    "method-not-allowed": "The method is not allowed here",
    "request-timeout": "The body came too slowly",
    "conflict": "Another object has this name",
    "decided": "It is decided already",
    "deleted": "The execution was deleted",
    "expired": "The list has changed too much",
    "body-too-large": "The body is too large",
    "media-type": "The body's media type is not supported",
    "not-acceptable": "None of the accepted media types can be had",
    "invalid": "The request is not valid",
    "code-refused": "The pool does not run such code",
    "refused": "The cluster refused the execution",
    "key-reused": "The Idempotency-Key was used with another body",
    "too-many": "Too many at once",
    "rate-limited": "Too many in a minute",
    "queue-full": "The pool's queue is full",
    "unavailable": "Not available right now",
    "internal": "Internal error",
}
"""What each kind of problem is called."""


class ProblemDetails(BaseModel):
    """Why a request failed (RFC 9457)."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    type: str = Field(examples=["urn:mcp-exec:problem:invalid"])
    """A URN for programs, one for each kind of problem."""
    title: str
    """What the kind is called."""
    status: int
    """The HTTP status."""
    detail: str
    """What happened here, as a sentence for people."""
    errors: list[FieldError] = Field(default_factory=list)
    """What is wrong with which field, where fields are wrong."""
    execution: str | None = None
    """The execution that this is about, where there is one."""


class Problem(Exception):
    """Ends a request with a problem detail.

    `kind` is one of TITLES; `status` the HTTP status; `errors` names the fields that are wrong; `execution` the
    execution's name, where one may exist; `headers` go into the response.
    """

    def __init__(
        self,
        kind: str,
        status: int,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        execution: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status = status
        self.detail = detail
        self.errors = list(errors)
        self.execution = execution
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The problem as a response."""
        body: dict[str, object] = {
            "type": f"urn:mcp-exec:problem:{self.kind}",
            "title": TITLES[self.kind],
            "status": self.status,
            "detail": self.detail,
            "errors": [error.model_dump() for error in self.errors],
        }
        if self.execution is not None:
            body["execution"] = self.execution
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        return Response(content, self.status, headers=self.headers, media_type=MEDIA_TYPE)


def invalid(*errors: FieldError, execution: str | None = None) -> Problem:
    """422 for fields that are wrong."""
    detail = "; ".join(f"{error.field}: {error.message}" for error in errors)
    return Problem("invalid", 422, detail, errors=errors, execution=execution)


def invalid_field(field: str, message: str) -> Problem:
    """422 for one field."""
    return invalid(FieldError(field=field, message=message))


def not_found(namespace: str, name: str) -> Problem:
    """404 for an execution."""
    return Problem("not-found", 404, f"there is no execution {name} in namespace {namespace}", execution=name)


def unavailable(detail: str, *, execution: str | None = None, retry_after: int = 2) -> Problem:
    """503 with the seconds after which to try again."""
    return Problem("unavailable", 503, detail, execution=execution, headers={"Retry-After": str(retry_after)})


def too_many(detail: str, *, kind: str = "too-many", retry_after: int = 1) -> Problem:
    """429 with the seconds after which to try again."""
    return Problem(kind, 429, detail, headers={"Retry-After": str(retry_after)})
