"""Problem details (RFC 9457): the body of every error response."""

from pydantic import BaseModel, ConfigDict, Field

from mcp_exec_api.meta import FieldError


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
