"""Parts of which the descriptions of routes are made."""

from typing import Any, Final

from mcp_exec_gateway.http.problems import MEDIA_TYPE, TITLES
from mcp_exec_gateway.openapi import examples

REF: Final = "#/components/schemas/"
JSON: Final = "application/json"


def describe_problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems of a route: those that every route has, and these."""
    return {code: describe_problem(code) for code in (*codes, 401, 403, 422, 503)}


def describe_problem(code: int) -> dict[str, Any]:
    """Return a response that reports a problem."""
    kind, detail, errors = examples.PROBLEMS[code]
    example = {
        "type": f"urn:mcp-exec:problem:{kind}",
        "title": TITLES[kind],
        "status": code,
        "detail": detail,
        "errors": errors,
    }
    content = {MEDIA_TYPE: {"schema": {"$ref": REF + "ProblemDetails"}, "example": example}}
    headers = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}} if code in (429, 503) else {}
    return {"description": TITLES[kind], "content": content, **({"headers": headers} if headers else {})}


def describe_response(description: str, schema: str, **values: dict[str, Any]) -> dict[str, Any]:
    """Return a response with JSON of a schema, and its examples."""
    named = {name: {"value": value} for name, value in values.items()}
    return {
        "description": description,
        "content": {JSON: {"schema": {"$ref": REF + schema}, "examples": named}},
    }
