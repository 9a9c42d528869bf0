"""The OpenAPI document of each route: summary, responses with schemas and examples, problems.

FastAPI adds the parameters. A route uses its part as `**openapi.CREATE`.
"""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from mcp_exec_api.approvals import Approval
from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_gateway.executions.approvals import NewDecision
from mcp_exec_gateway.executions.views import (
    ApprovalList,
    CallList,
    ExecutionList,
    ExecutionView,
    FoundTool,
    ServerTools,
)
from mcp_exec_gateway.http.problems import MEDIA_TYPE, TITLES, ProblemDetails
from mcp_exec_gateway.http.request_body import FIELDS_SET_LATER
from mcp_exec_gateway.openapi import examples

DESCRIPTION: Final = """\
Runs code in warm, single-use sandbox pods. A request that waits receives **200** when the execution has ended, also if
it failed: `phase` has the outcome. **202** with a `Location` means that the execution continues. Errors of the request
itself are problem details (RFC 9457).

If a client disconnects while it waits, its execution is cancelled, unless the request has `onDisconnect=continue`.
"""

_REF: Final = "#/components/schemas/"
_NEW_EXECUTION: Final = "NewExecution"
_JSON: Final = "application/json"


def _describe_problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: _describe_problem(code) for code in (*codes, 401, 403, 422, 503)}


def _describe_problem(code: int) -> dict[str, Any]:
    kind, detail, errors = examples.PROBLEMS[code]
    example = {
        "type": f"urn:mcp-exec:problem:{kind}",
        "title": TITLES[kind],
        "status": code,
        "detail": detail,
        "errors": errors,
    }
    content = {MEDIA_TYPE: {"schema": {"$ref": _REF + "ProblemDetails"}, "example": example}}
    headers = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}} if code in (429, 503) else {}
    return {"description": TITLES[kind], "content": content, **({"headers": headers} if headers else {})}


def _describe_response(description: str, schema: str, **values: dict[str, Any]) -> dict[str, Any]:
    named = {name: {"value": value} for name, value in values.items()}
    return {
        "description": description,
        "content": {_JSON: {"schema": {"$ref": _REF + schema}, "examples": named}},
    }


_LOCATION: Final = {"headers": {"Location": {"schema": {"type": "string"}, "description": "Path of the execution"}}}

CREATE: Final[dict[str, Any]] = {
    "summary": "Run code",
    "description": "Creates an execution and waits for its end. A rejected request creates nothing.",
    "response_model": None,
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {_JSON: {"schema": {"$ref": _REF + _NEW_EXECUTION}, "examples": examples.BODIES}},
        },
    },
    "responses": {
        200: _describe_response(
            "The execution has ended; `phase` has the outcome",
            "Execution",
            succeeded=examples.SUCCEEDED,
            failed=examples.FAILED,
        ),
        202: {**_describe_response("The execution continues", "Execution", pending=examples.PENDING), **_LOCATION},
        **_describe_problems(400, 408, 409, 410, 413, 415, 429),
    },
}
"""`POST /v1/executions`."""

LIST: Final[dict[str, Any]] = {
    "summary": "List executions",
    "description": "Returns a page of the namespace's executions without their output, in the API server's order.",
    "response_model": None,
    "responses": {
        200: _describe_response(
            "A page", "ExecutionList", page={"items": [examples.LISTED], "continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEi"}
        ),
        **_describe_problems(410),
    },
}
"""`GET /v1/executions`."""

GET: Final[dict[str, Any]] = {
    "summary": "Get an execution",
    "description": "Returns one execution as it is now; with `wait`, as it is at its end or when the wait ends.",
    "response_model": None,
    "responses": {
        200: _describe_response("The execution", "Execution", succeeded=examples.SUCCEEDED, pending=examples.PENDING),
        **_describe_problems(404, 410, 429),
    },
}
"""`GET /v1/executions/{name}`."""

CANCEL: Final[dict[str, Any]] = {
    "summary": "Cancel an execution",
    "description": "Requests the cancellation. The execution ends shortly after, and its object stays for its TTL.",
    "response_model": None,
    "responses": {
        200: _describe_response("The execution had already ended", "Execution", succeeded=examples.SUCCEEDED),
        202: _describe_response("The execution will end", "Execution", pending=examples.PENDING),
        **_describe_problems(404),
    },
}
"""`DELETE /v1/executions/{name}`."""

EVENTS: Final[dict[str, Any]] = {
    "summary": "Follow an execution's events",
    "description": (
        "Streams `status`, `stdout`, `stderr`, `tool_call`, `tool_result`, `approval`, `result` and `end`: live from "
        "the sandbox, and from the status once the sandbox is gone, which does not have the single tool calls. Ids are "
        "opaque; a client that sends the last id it received resumes exactly after it. If the execution was deleted, "
        "`end` has the phase null and the reason Deleted. With `Accept: application/x-ndjson`, events are lines of "
        "JSON."
    ),
    "response_model": None,
    "responses": {
        200: {
            "description": "The events, up to `end`",
            "content": {
                "text/event-stream": {"schema": {"type": "string"}, "example": examples.EVENTS},
                "application/x-ndjson": {"schema": {"type": "string"}},
            },
        },
        204: {"description": "The client has received all events"},
        **_describe_problems(404, 406, 429),
    },
}
"""`GET /v1/executions/{name}/events`."""

APPROVALS: Final[dict[str, Any]] = {
    "summary": "List an execution's approvals",
    "description": "Returns the newest 50 tool calls of the execution that need or needed an approval.",
    "response_model": None,
    "responses": {
        200: _describe_response("The approvals", "ApprovalList", one={"items": [examples.APPROVAL]}),
        **_describe_problems(404),
    },
}
"""`GET /v1/executions/{name}/approvals`."""

DECIDE: Final[dict[str, Any]] = {
    "summary": "Approve or deny a tool call",
    "description": (
        "Decides on a pending tool call; a decision is final. The caller needs an approver's API key, or a "
        "ServiceAccount that may `update` `codeexecutions/approval`."
    ),
    "response_model": None,
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {_JSON: {"schema": {"$ref": _REF + "NewDecision"}, "example": {"decision": "Approve"}}},
        },
    },
    "responses": {
        200: _describe_response("The approval", "Approval", approved=examples.DECIDED),
        409: {**_describe_problem(409), "description": "The approval is decided, expired or withdrawn"},
        **_describe_problems(400, 404, 408, 413, 415),
    },
}
"""`POST /v1/executions/{name}/approvals/{id}`."""

SEARCH: Final[dict[str, Any]] = {
    "summary": "Search for tools",
    "description": (
        "Returns tools that code in the namespace can call, best match first. `name_only` has name and server; "
        "`with_description` adds description and import; `full` adds input_schema and output_schema."
    ),
    "response_model": None,
    "responses": {
        200: {
            "description": "The tools",
            "content": {
                _JSON: {
                    "schema": {"type": "array", "items": {"$ref": _REF + "FoundTool"}},
                    "example": examples.FOUND,
                },
            },
        },
        **_describe_problems(),
    },
}
"""`GET /api/v1/mcp/tools/search`."""

TOOLS: Final[dict[str, Any]] = {
    "summary": "List a server's tools",
    "description": (
        "Returns the tools as the server lists them, with their own names and schemas, so that wrappers can be "
        "generated from the response. An API key with a limit on tools sees only those that it may use."
    ),
    "response_model": None,
    "responses": {
        200: _describe_response("The tools", "ServerTools", one=examples.TOOLS),
        404: {**_describe_problem(404), "description": "The server does not exist or has no tools"},
        **_describe_problems(),
    },
}
"""`GET /api/v1/mcp/servers/{name}/tools`."""

AUDIT: Final[dict[str, Any]] = {
    "summary": "List audit records of tool calls",
    "description": "Returns records of all tool calls in the namespace, newest first, with redacted arguments.",
    "response_model": None,
    "responses": {
        200: _describe_response(
            "A page", "CallList", page={"items": [examples.RECORD], "next": "eyJ1bnRpbCI6IjIwMjYifQ=="}
        ),
        **_describe_problems(),
    },
}
"""`GET /v1/audit`."""

_MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [
    (CodeExecutionSpec, "validation"),
    (ExecutionView, "serialization"),
    (ExecutionList, "serialization"),
    (Approval, "serialization"),
    (ApprovalList, "serialization"),
    (NewDecision, "validation"),
    (FoundTool, "serialization"),
    (ServerTools, "serialization"),
    (CallList, "serialization"),
    (ProblemDetails, "serialization"),
]


def build_schemas() -> dict[str, Any]:
    """Build the schemas of request and response bodies, by name."""
    _, document = models_json_schema(_MODELS, ref_template=_REF + "{model}")
    schemas: dict[str, Any] = document["$defs"]
    schemas["Execution"] = {**schemas.pop("ExecutionView"), "title": "Execution"}
    spec = schemas.pop("CodeExecutionSpec")
    for name in FIELDS_SET_LATER:
        del spec["properties"][name]
    schemas[_NEW_EXECUTION] = {**spec, "title": _NEW_EXECUTION, "description": "The code and its limits."}
    return schemas


def add_schemas(app: FastAPI) -> None:
    """Add the schemas of bodies to the application's OpenAPI document, which FastAPI builds without them."""

    def build_document() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            document.setdefault("components", {}).setdefault("schemas", {}).update(build_schemas())
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = build_document  # type: ignore[method-assign]
