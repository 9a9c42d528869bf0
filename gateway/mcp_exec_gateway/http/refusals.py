"""Creations that the API server rejects."""

from mcp_exec_api.meta import FieldError
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_gateway.http.problems import HttpProblem, too_many, unavailable


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
