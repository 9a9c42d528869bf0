"""Problem details (RFC 9457): the body of every error response."""

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from mcp_exec_api.meta import FieldError

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
PROBLEM_PREFIX: Final = "urn:mcp-exec:problem:"
"""Beginning of each `type`; the kind follows."""

PROBLEM_TITLES: Final = {
    "bad-json": "The body is not valid JSON",
    "unauthenticated": "Authentication is required",
    "forbidden": "Not allowed",
    "misdirected": "The host is not served here",
    "not-found": "Not found",
    "method-not-allowed": "The method is not allowed for this path",
    "request-timeout": "The body arrived too slowly",
    "conflict": "Another object has this name",
    "decided": "The approval is already decided",
    "unfinished": "The execution has not ended",
    "deleted": "The execution was deleted",
    "expired": "The link has expired",
    "changed": "Somebody else changed the same files",
    "outdated": "The file or workspace is not as the request expects",
    "quota": "A quota is used up",
    "body-too-large": "The body is too large",
    "media-type": "The body's media type is not supported",
    "not-acceptable": "No accepted media type is available",
    "invalid": "The request is invalid",
    "code-refused": "The pool rejects this code",
    "language-not-offered": "No pool runs this language",
    "language-not-checked": "The pool checks code, and has no rules for this language",
    "refused": "The cluster rejected the execution",
    "key-reused": "The Idempotency-Key was used with another body",
    "too-many": "Too many at once",
    "rate-limited": "Too many requests in a minute",
    "queue-full": "The pool's queue is full",
    "stored": "Too many executions are stored",
    "unavailable": "Temporarily unavailable",
    "internal": "Internal error",
}
"""Title of each kind of problem. The kind is the last part of `type`."""


class ProblemDetails(BaseModel):
    """Why a request failed (RFC 9457)."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    type: str = Field(examples=["urn:mcp-exec:problem:invalid"])
    """URN of the kind of problem, for programs."""
    title: str
    """Title of the kind of problem."""
    status: int
    """HTTP status code."""
    detail: str
    """What is wrong with this request, as a sentence for people."""
    errors: list[FieldError] = Field(default_factory=list)
    """Invalid fields of the request, if any."""
    execution: str | None = None
    """Name of the execution concerned, if there is one."""

    @classmethod
    def build(
        cls, kind: str, status: int, detail: str, *, errors: Sequence[FieldError] = (), execution: str | None = None
    ) -> "ProblemDetails":
        """Return a problem of a kind, a key of PROBLEM_TITLES. The texts are not validated."""
        return cls.model_construct(
            type=PROBLEM_PREFIX + kind,
            title=PROBLEM_TITLES[kind],
            status=status,
            detail=detail,
            errors=list(errors),
            execution=execution,
        )

    @property
    def kind(self) -> str:
        """The last part of `type`."""
        return self.type.removeprefix(PROBLEM_PREFIX)
