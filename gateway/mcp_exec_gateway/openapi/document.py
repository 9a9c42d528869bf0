"""The OpenAPI document of each route: summary, responses with schemas and examples, problems.

FastAPI adds the parameters. A route uses its part as `**openapi.CREATE`.
"""

from typing import Any, Final, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from mcp_exec_api.approvals import Approval
from mcp_exec_api.wire.events import STREAM_EVENTS, StreamEvent
from mcp_exec_api.wire.executions import (
    ApprovalList,
    Execution,
    ExecutionList,
    NewDecision,
    NewExecution,
    PendingApprovalList,
)
from mcp_exec_api.wire.problems import ProblemDetails
from mcp_exec_api.wire.stats import NamespaceStats
from mcp_exec_api.wire.tools import CallList, FoundTool, ServerTools
from mcp_exec_gateway.http.request_body import FIELDS_SET_LATER
from mcp_exec_gateway.openapi import examples, files, records, rollouts, sessions, skills, usage
from mcp_exec_gateway.openapi.parts import JSON, REF, describe_problem, describe_problems, describe_response

DESCRIPTION: Final = """\
Runs code in warm, single-use sandbox pods. A request that waits receives **200** when the execution has ended, also if
it failed: `phase` has the outcome. **202** with a `Location` means that the execution continues. Errors of the request
itself are problem details (RFC 9457).

If a client disconnects while it waits, its execution is cancelled, unless the request has `onDisconnect=continue`.
"""

_NEW_EXECUTION: Final = "NewExecution"
_EVENT: Final = "Event"


_LOCATION: Final = {"headers": {"Location": {"schema": {"type": "string"}, "description": "Path of the execution"}}}

CREATE: Final[dict[str, Any]] = {
    "summary": "Run code",
    "description": "Creates an execution and waits for its end. A rejected request creates nothing.",
    "response_model": None,
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": {"$ref": REF + _NEW_EXECUTION}, "examples": examples.BODIES}},
        },
    },
    "responses": {
        200: describe_response(
            "The execution has ended; `phase` has the outcome",
            "Execution",
            succeeded=examples.SUCCEEDED,
            failed=examples.FAILED,
        ),
        202: {**describe_response("The execution continues", "Execution", pending=examples.PENDING), **_LOCATION},
        **describe_problems(400, 408, 409, 410, 413, 415, 429),
    },
}
"""`POST /v1/executions`."""

LIST: Final[dict[str, Any]] = {
    "summary": "List executions",
    "description": (
        "Returns a page of the namespace's executions without their output, newest first. It comes from a cache that "
        "is usually some milliseconds old. With several filters, all must match."
    ),
    "response_model": None,
    "responses": {
        200: describe_response(
            "A page",
            "ExecutionList",
            page={"items": [examples.LISTED], "continue": "WzE3OTUsICJleGVjLTAxIl0"},
        ),
        **describe_problems(),
    },
}
"""`GET /v1/executions`."""

GET: Final[dict[str, Any]] = {
    "summary": "Get an execution",
    "description": "Returns one execution as it is now; with `wait`, as it is at its end or when the wait ends.",
    "response_model": None,
    "responses": {
        200: describe_response("The execution", "Execution", succeeded=examples.SUCCEEDED, pending=examples.PENDING),
        **describe_problems(404, 410, 429),
    },
}
"""`GET /v1/executions/{name}`."""

CANCEL: Final[dict[str, Any]] = {
    "summary": "Cancel or delete an execution",
    "description": (
        "Requests the cancellation. The execution ends shortly after, and its object stays for its TTL. With `purge`, "
        "an execution that has ended is deleted with its artifacts, and links to them end. Its records and the audit "
        "records of its tool calls stay. If records are kept, it is deleted once its record is stored."
    ),
    "response_model": None,
    "responses": {
        200: describe_response("The execution had already ended", "Execution", succeeded=examples.SUCCEEDED),
        202: describe_response(
            "The execution will end, or with `purge`, will be deleted", "Execution", pending=examples.PENDING
        ),
        204: {"description": "The execution is deleted"},
        409: {**describe_problem(409), "description": "With `purge`: the execution has not ended"},
        **describe_problems(404, 429),
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
        "JSON. The schema is that of one event: the `data` of a server-sent event, or one line."
    ),
    "response_model": None,
    "responses": {
        200: {
            "description": "The events, up to `end`",
            "content": {
                "text/event-stream": {
                    "schema": {
                        "type": "string",
                        "description": f"Server-sent events. The `data` of each is an {_EVENT} as JSON.",
                    },
                    "example": examples.EVENTS,
                },
                "application/x-ndjson": {
                    "schema": {"$ref": REF + _EVENT},
                },
            },
        },
        204: {"description": "The client has received all events"},
        **describe_problems(404, 406, 429),
    },
}
"""`GET /v1/executions/{name}/events`."""

APPROVALS: Final[dict[str, Any]] = {
    "summary": "List an execution's approvals",
    "description": "Returns the newest 50 tool calls of the execution that need or needed an approval.",
    "response_model": None,
    "responses": {
        200: describe_response("The approvals", "ApprovalList", one={"items": [examples.APPROVAL]}),
        **describe_problems(404),
    },
}
"""`GET /v1/executions/{name}/approvals`."""

PENDING_APPROVALS: Final[dict[str, Any]] = {
    "summary": "List pending approvals",
    "description": "Returns the tool calls of the namespace that wait for an approval, newest first.",
    "response_model": None,
    "responses": {
        200: describe_response(
            "The approvals", "PendingApprovalList", one={"items": [examples.PENDING_APPROVAL], "complete": True}
        ),
        **describe_problems(),
    },
}
"""`GET /v1/approvals`."""

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
            "content": {JSON: {"schema": {"$ref": REF + "NewDecision"}, "example": {"decision": "Approve"}}},
        },
    },
    "responses": {
        200: describe_response("The approval", "Approval", approved=examples.DECIDED),
        409: {**describe_problem(409), "description": "The approval is decided, expired or withdrawn"},
        **describe_problems(400, 404, 408, 413, 415),
    },
}
"""`POST /v1/executions/{name}/approvals/{id}`."""

SEARCH: Final[dict[str, Any]] = {
    "summary": "Search for tools",
    "description": (
        "Returns tools that code in the namespace can call, best match first. `name_only` has name and server; "
        "`with_description` adds description and import; `full` adds signature, input_schema and output_schema."
    ),
    "response_model": None,
    "responses": {
        200: {
            "description": "The tools",
            "content": {
                JSON: {
                    "schema": {"type": "array", "items": {"$ref": REF + "FoundTool"}},
                    "example": examples.FOUND,
                },
            },
        },
        **describe_problems(),
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
        200: describe_response("The tools", "ServerTools", one=examples.TOOLS),
        404: {**describe_problem(404), "description": "The server does not exist or has no tools"},
        **describe_problems(),
    },
}
"""`GET /api/v1/mcp/servers/{name}/tools`."""

AUDIT: Final[dict[str, Any]] = {
    "summary": "List audit records of tool calls",
    "description": "Returns records of all tool calls in the namespace, newest first, with redacted arguments.",
    "response_model": None,
    "responses": {
        200: describe_response(
            "A page", "CallList", page={"items": [examples.RECORD], "next": "eyJ1bnRpbCI6IjIwMjYifQ=="}
        ),
        **describe_problems(),
    },
}
"""`GET /v1/audit`."""

STATS: Final[dict[str, Any]] = {
    "summary": "Get statistics of a namespace",
    "description": (
        "Returns the pools that the caller may use, with their limits, pods and libraries, the tool servers, the "
        "number of unfinished executions, and the caller's limits. All of it comes from caches."
    ),
    "response_model": None,
    "responses": {
        200: describe_response("The statistics", "NamespaceStats", one=examples.STATS),
        **describe_problems(),
    },
}
"""`GET /v1/stats`."""

MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [
    (NewExecution, "validation"),
    (Execution, "serialization"),
    (ExecutionList, "serialization"),
    (Approval, "serialization"),
    (ApprovalList, "serialization"),
    (PendingApprovalList, "serialization"),
    (NewDecision, "validation"),
    (FoundTool, "serialization"),
    (ServerTools, "serialization"),
    (CallList, "serialization"),
    (NamespaceStats, "serialization"),
    (ProblemDetails, "serialization"),
    *skills.MODELS,
    *records.MODELS,
    *usage.MODELS,
    *rollouts.MODELS,
    *((event, "serialization") for event in STREAM_EVENTS),
    *sessions.MODELS,
    *files.MODELS,
]


def build_schemas() -> dict[str, Any]:
    """Build the schemas of request and response bodies, by name."""
    _, document = models_json_schema(MODELS, ref_template=REF + "{model}")
    schemas: dict[str, Any] = document["$defs"]
    references = {kind: REF + event.__name__ for event in STREAM_EVENTS for kind in _list_types(event)}
    schemas[_EVENT] = {
        "oneOf": [{"$ref": reference} for reference in dict.fromkeys(references.values())],
        "discriminator": {"propertyName": "type", "mapping": references},
        "description": "An event of an execution's stream.",
    }
    del schemas["NewSession"]["properties"]["resets"]
    new = schemas[_NEW_EXECUTION]
    for name in FIELDS_SET_LATER:
        del new["properties"][name]
    schemas[_NEW_EXECUTION] = {**new, "description": "The code, its limits, and what identifies the execution."}
    return schemas


def _list_types(event: type[StreamEvent]) -> tuple[str, ...]:
    return get_args(event.model_fields["type"].annotation)


def build_operation_id(route: APIRoute) -> str:
    """Return the id of a route's operation, from which clients are generated: `list_executions` is listExecutions."""
    first, *rest = route.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def add_schemas(app: FastAPI) -> None:
    """Add the schemas of bodies to the application's OpenAPI document, which FastAPI builds without them."""

    def build_document() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            document.setdefault("components", {}).setdefault("schemas", {}).update(build_schemas())
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = build_document  # type: ignore[method-assign]
