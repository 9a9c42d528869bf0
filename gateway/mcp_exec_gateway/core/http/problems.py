"""Problem details (RFC 9457): the body of every error response."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from mcp_exec_api.meta import MAX_FIELD_ERRORS, FieldError, describe, format_path
from mcp_exec_api.wire.problems import PROBLEM_MEDIA_TYPE, ProblemDetails
from mcp_exec_common.kube.errors import ApiError


class HttpProblem(Exception):
    """Ends a request with problem details.

    `kind` is a key of PROBLEM_TITLES, `errors` names the invalid fields, `execution` is the name of an execution that
    exists or may exist, and `headers` are added to the response.
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
        """Build the response."""
        problem = ProblemDetails.build(
            self.kind, self.status, self.detail, errors=self.errors, execution=self.execution
        )
        content = json.dumps(problem.model_dump(exclude_none=True), ensure_ascii=False).encode("utf-8", "replace")
        return Response(content, self.status, headers=self.headers, media_type=PROBLEM_MEDIA_TYPE)


def invalid(*errors: FieldError, execution: str | None = None) -> HttpProblem:
    """Return a 422 for invalid fields."""
    detail = "; ".join(error.format() for error in errors)
    return HttpProblem("invalid", 422, detail, errors=errors, execution=execution)


def invalid_field(field: str, message: str) -> HttpProblem:
    """Return a 422 for one invalid field."""
    return invalid(FieldError(field=field, message=message))


def invalid_parameters(errors: Sequence[Any], query: type[BaseModel] | None = None) -> HttpProblem:
    """Return a 422 for path, query and header parameters, from FastAPI's validation errors.

    `query` is the model of the route's query parameters.
    """
    return invalid(
        *(
            FieldError(field=format_path(error["loc"][1:]), message=_describe_parameter(error, query))
            for error in errors[:MAX_FIELD_ERRORS]
        )
    )


def _describe_parameter(error: Any, query: type[BaseModel] | None) -> str:
    message = describe(error, query if error["loc"][0] == "query" else None)
    return message.replace("unknown field", f"unknown {error['loc'][0]} parameter", 1)


def not_found(namespace: str, name: str) -> HttpProblem:
    """Return a 404 for an execution."""
    return HttpProblem("not-found", 404, f"there is no execution {name} in namespace {namespace}", execution=name)


def unavailable(detail: str, *, execution: str | None = None, retry_after: int = 2) -> HttpProblem:
    """Return a 503 that asks for a retry after some seconds."""
    return HttpProblem("unavailable", 503, detail, execution=execution, headers={"Retry-After": str(retry_after)})


def too_many(detail: str, *, kind: str = "too-many", retry_after: int = 1) -> HttpProblem:
    """Return a 429 that asks for a retry after some seconds."""
    return HttpProblem(kind, 429, detail, headers={"Retry-After": str(retry_after)})


def internal_error() -> HttpProblem:
    """Return a 500 without details, which are in the gateway's log."""
    return HttpProblem("internal", 500, "the gateway failed unexpectedly and logged the error")


def translate_refusal(error: ApiError, *, namespace: str, kind: str) -> HttpProblem:
    """Return the problem for an API server that rejects the creation of an object of this kind."""
    if error.code == 404:
        return unavailable(f"namespace {namespace} or the resource {kind} does not exist")
    if error.code == 413 or "request is too large" in error.message:
        return HttpProblem("body-too-large", 413, f"the {kind} is larger than the API server accepts")
    if error.code == 403 and "exceeded quota" in error.message:
        return too_many(f"a quota of namespace {namespace} is used up: {error.message}", retry_after=5)
    if error.code in (400, 422) or "admission webhook" in error.message:
        causes = error.details.get("causes") or []
        errors = [
            FieldError(field=str(cause.get("field", "")).removeprefix("spec."), message=str(cause.get("message", "")))
            for cause in causes
        ]
        return HttpProblem("refused", 422, error.message, errors=errors)
    return unavailable(f"the API server rejected the {kind}: {error.message or error.reason}")
