"""What the OpenAPI document says of each route: summaries, schemas from the shared types, examples, problems."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from mcp_exec_api.approvals import Approval
from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_gateway.executions.approvals import NewDecision
from mcp_exec_gateway.executions.views import ApprovalList, CallList, Execution, ExecutionList, FoundTool, ServerTools
from mcp_exec_gateway.http.problems import MEDIA_TYPE, TITLES, ProblemDetails
from mcp_exec_gateway.http.query_params import (
    AuditQuery,
    CreateQuery,
    EventsQuery,
    GetQuery,
    ListQuery,
    Query,
    SearchQuery,
)
from mcp_exec_gateway.http.request_body import NOT_GIVEN
from mcp_exec_gateway.openapi.examples import (
    APPROVAL,
    BODIES,
    DECIDED,
    FAILED,
    FOUND,
    LISTED,
    PENDING,
    PROBLEMS,
    RECORD,
    SUCCEEDED,
)
from mcp_exec_gateway.openapi.examples import EVENTS as EVENT_STREAM
from mcp_exec_gateway.openapi.examples import TOOLS as SERVER_TOOLS

DESCRIPTION: Final = """\
Runs code in warm, single-use sandbox pods. A request that waits answers **200** when the execution ended, whatever
its end: `phase` tells whether it succeeded. **202** with a `Location` means that it goes on. Errors of the request
itself are problem details (RFC 9457).

When a client goes away while it waits, its execution is cancelled, unless it sent `onDisconnect=continue`.
"""

_REF: Final = "#/components/schemas/"
_NEW: Final = "NewExecution"
_JSON: Final = "application/json"


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: _problem(code) for code in (*codes, 401, 403, 422, 503)}


def _problem(code: int) -> dict[str, Any]:
    kind, detail, errors = PROBLEMS[code]
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


def _answer(description: str, schema: str, **examples: dict[str, Any]) -> dict[str, Any]:
    shown = {name: {"value": value} for name, value in examples.items()}
    return {
        "description": description,
        "content": {_JSON: {"schema": {"$ref": _REF + schema}, "examples": shown}},
    }


def _parameters(model: type[Query], *headers: dict[str, Any]) -> list[dict[str, Any]]:
    properties: dict[str, Any] = model.model_json_schema(ref_template=_REF + "{model}")["properties"]
    return [
        *(
            {"name": name, "in": "query", "description": schema.pop("description"), "schema": schema}
            for name, schema in properties.items()
        ),
        *headers,
    ]


_IDEMPOTENCY_KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[\x20-\x7e]+$"},
    "description": "Makes a retry safe: for as long as the execution exists, the same key of the same caller with the "
    "same body stands for the same execution. With another body it is refused.",
}
_LAST_EVENT_ID: Final[dict[str, Any]] = {
    "name": "Last-Event-ID",
    "in": "header",
    "schema": {"type": "string"},
    "description": "The id of the last event that was received.",
}
_LOCATION: Final = {"headers": {"Location": {"schema": {"type": "string"}, "description": "Where it can be followed"}}}

CREATE: Final[dict[str, Any]] = {
    "summary": "Run code",
    "description": "Creates an execution and waits for its end. Nothing is left behind by a request that is refused.",
    "response_model": None,
    "openapi_extra": {
        "parameters": _parameters(CreateQuery, _IDEMPOTENCY_KEY),
        "requestBody": {
            "required": True,
            "content": {_JSON: {"schema": {"$ref": _REF + _NEW}, "examples": BODIES}},
        },
    },
    "responses": {
        200: _answer("It ended; `phase` tells how", "Execution", succeeded=SUCCEEDED, failed=FAILED),
        202: {**_answer("It goes on", "Execution", pending=PENDING), **_LOCATION},
        **_problems(400, 408, 409, 410, 413, 415, 429),
    },
}
"""`POST /v1/executions`."""

LIST: Final[dict[str, Any]] = {
    "summary": "List executions",
    "description": "A page of the namespace's executions, without their output, in the API server's order.",
    "response_model": None,
    "openapi_extra": {"parameters": _parameters(ListQuery)},
    "responses": {
        200: _answer("A page", "ExecutionList", page={"items": [LISTED], "continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEi"}),
        **_problems(410),
    },
}
"""`GET /v1/executions`."""

GET: Final[dict[str, Any]] = {
    "summary": "Get an execution",
    "description": "One execution as it is, or with `wait` as it is at its end or when the wait ends.",
    "response_model": None,
    "openapi_extra": {"parameters": _parameters(GetQuery)},
    "responses": {
        200: _answer("The execution", "Execution", succeeded=SUCCEEDED, pending=PENDING),
        **_problems(404, 410, 429),
    },
}
"""`GET /v1/executions/{name}`."""

CANCEL: Final[dict[str, Any]] = {
    "summary": "Cancel an execution",
    "description": "Asks for its end; follow it to see it. The object stays until its time to live is over.",
    "response_model": None,
    "openapi_extra": {"parameters": _parameters(Query)},
    "responses": {
        200: _answer("It had ended before", "Execution", succeeded=SUCCEEDED),
        202: _answer("It will end", "Execution", pending=PENDING),
        **_problems(404),
    },
}
"""`DELETE /v1/executions/{name}`."""

EVENTS: Final[dict[str, Any]] = {
    "summary": "Follow an execution's events",
    "description": (
        "`status`, `stdout`, `stderr`, `tool_call`, `tool_result`, `approval`, `result` and `end`, live from the "
        "sandbox and, when it is gone, from the status, which does not tell calls one by one. Ids are opaque; a reader "
        "that sends the last one it has goes on exactly there. `end` has phase null and reason Deleted where the "
        "execution was deleted. Lines of JSON with `Accept: application/x-ndjson`."
    ),
    "response_model": None,
    "openapi_extra": {"parameters": _parameters(EventsQuery, _LAST_EVENT_ID)},
    "responses": {
        200: {
            "description": "The events, up to `end`",
            "content": {
                "text/event-stream": {"schema": {"type": "string"}, "example": EVENT_STREAM},
                "application/x-ndjson": {"schema": {"type": "string"}},
            },
        },
        204: {"description": "The reader has had them all"},
        **_problems(404, 406, 429),
    },
}
"""`GET /v1/executions/{name}/events`."""

APPROVALS: Final[dict[str, Any]] = {
    "summary": "List an execution's approvals",
    "description": "Tool calls that need or needed somebody's consent, the newest 50.",
    "response_model": None,
    "openapi_extra": {"parameters": _parameters(Query)},
    "responses": {200: _answer("The approvals", "ApprovalList", one={"items": [APPROVAL]}), **_problems(404)},
}
"""`GET /v1/executions/{name}/approvals`."""

DECIDE: Final[dict[str, Any]] = {
    "summary": "Approve or deny a tool call",
    "description": (
        "Decides once and for all on a call that waits. By an API key that is an approver's, or a ServiceAccount that "
        "may `update` `codeexecutions/approval`."
    ),
    "response_model": None,
    "openapi_extra": {
        "parameters": _parameters(Query),
        "requestBody": {
            "required": True,
            "content": {_JSON: {"schema": {"$ref": _REF + "NewDecision"}, "example": {"decision": "Approve"}}},
        },
    },
    "responses": {
        200: _answer("The approval", "Approval", approved=DECIDED),
        409: {**_problem(409), "description": "It is decided, expired or withdrawn"},
        **_problems(400, 404, 408, 413, 415),
    },
}
"""`POST /v1/executions/{name}/approvals/{id}`."""

SEARCH: Final[dict[str, Any]] = {
    "summary": "Find tools",
    "description": (
        "Tools that code in the namespace can call, best first. `name_only` tells name and server; "
        "`with_description` adds description and import; `full` adds input_schema and output_schema."
    ),
    "response_model": None,
    "openapi_extra": {"parameters": _parameters(SearchQuery)},
    "responses": {
        200: {
            "description": "The tools",
            "content": {
                _JSON: {"schema": {"type": "array", "items": {"$ref": _REF + "FoundTool"}}, "example": FOUND},
            },
        },
        **_problems(),
    },
}
"""`GET /api/v1/mcp/tools/search`."""

TOOLS: Final[dict[str, Any]] = {
    "summary": "List a server's tools",
    "description": (
        "As the server lists them itself, with their own names and schemas, so that wrappers can be generated from the "
        "answer; of an API key with `tools`, those that it may use."
    ),
    "response_model": None,
    "openapi_extra": {"parameters": _parameters(Query)},
    "responses": {
        200: _answer("The tools", "ServerTools", one=SERVER_TOOLS),
        404: {**_problem(404), "description": "No tools of such a server are known"},
        **_problems(),
    },
}
"""`GET /api/v1/mcp/servers/{name}/tools`."""

AUDIT: Final[dict[str, Any]] = {
    "summary": "List records of tool calls",
    "description": "Of all calls in the namespace, newest first, with redacted arguments.",
    "response_model": None,
    "openapi_extra": {"parameters": _parameters(AuditQuery)},
    "responses": {
        200: _answer("A page", "CallList", page={"items": [RECORD], "next": "eyJ1bnRpbCI6IjIwMjYifQ=="}),
        **_problems(),
    },
}
"""`GET /v1/audit`."""

_MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [
    (CodeExecutionSpec, "validation"),
    (Execution, "serialization"),
    (ExecutionList, "serialization"),
    (Approval, "serialization"),
    (ApprovalList, "serialization"),
    (NewDecision, "validation"),
    (FoundTool, "serialization"),
    (ServerTools, "serialization"),
    (CallList, "serialization"),
    (ProblemDetails, "serialization"),
]


def schemas() -> dict[str, Any]:
    """The schemas of bodies and answers, by name."""
    _, document = models_json_schema(_MODELS, ref_template=_REF + "{model}")
    found: dict[str, Any] = document["$defs"]
    body = found.pop("CodeExecutionSpec")
    for name in NOT_GIVEN:
        del body["properties"][name]
    found[_NEW] = {**body, "title": _NEW, "description": "What to run."}
    return found


def complete(app: FastAPI) -> None:
    """Gives the application its document: FastAPI's, with these schemas and the way to authenticate."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            components = made.setdefault("components", {})
            components.setdefault("schemas", {}).update(schemas())
            components["securitySchemes"] = {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key (`mcpx_...`) or a Kubernetes ServiceAccount token.",
                }
            }
            for path, methods in made["paths"].items():
                if path.startswith(("/v1/", "/api/v1/")):
                    for operation in methods.values():
                        operation["security"] = [{"bearer": []}]
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
