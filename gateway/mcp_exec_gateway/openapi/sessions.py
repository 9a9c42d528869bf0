"""The OpenAPI document of sessions."""

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from mcp_exec_api.wire.sessions import NewSession, Session, SessionList
from mcp_exec_gateway.openapi.parts import JSON, REF, describe_problem, describe_problems, describe_response

SESSION: Final[dict[str, Any]] = {
    "name": "analysis",
    "namespace": "agents",
    "pool": "default",
    "caller": "team-a",
    "description": "Sales by region",
    "phase": "Ready",
    "reason": "",
    "executions": 4,
    "queued": 0,
    "memoryBytes": 50331648,
    "idleTimeoutSeconds": 900,
    "maxAgeSeconds": 28800,
    "maxQueued": 16,
    "resets": 0,
    "podName": "default-7k2mq",
    "nodeName": "node-2",
    "createdAt": "2026-11-21T20:00:00.000000Z",
    "startedAt": "2026-11-21T20:00:00.210000Z",
    "lastUsedAt": "2026-11-21T20:04:10.120000Z",
    "expiresAt": "2026-11-21T20:19:10.120000Z",
}
"""A session that waits for an execution."""
_NEW: Final = {"name": "analysis", "idleTimeoutSeconds": 1800, "description": "Sales by region"}

CREATE_SESSION: Final[dict[str, Any]] = {
    "summary": "Create a session",
    "description": (
        "Creates a session with limits of its own. An execution that names a session which does not exist creates it "
        "with the defaults."
    ),
    "response_model": None,
    "status_code": 201,
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": {"$ref": REF + "NewSession"}, "example": _NEW}},
        },
    },
    "responses": {
        201: describe_response("The session", "Session", new={**SESSION, "phase": "Pending", "executions": 0}),
        409: {**describe_problem(409), "description": "The caller has a session of this name"},
        **describe_problems(400, 408, 413, 415, 429),
    },
}
"""`POST /v1/sessions`."""

LIST_SESSIONS: Final[dict[str, Any]] = {
    "summary": "List sessions",
    "description": "Returns the caller's own sessions, of all users or of one, from a cache some milliseconds old.",
    "response_model": None,
    "responses": {
        200: describe_response("The sessions", "SessionList", one={"items": [SESSION]}),
        **describe_problems(),
    },
}
"""`GET /v1/sessions`."""

GET_SESSION: Final[dict[str, Any]] = {
    "summary": "Get a session",
    "description": "Returns one of the caller's own sessions as it is now.",
    "response_model": None,
    "responses": {200: describe_response("The session", "Session", ready=SESSION), **describe_problems(404)},
}
"""`GET /v1/sessions/{name}`."""

RESET_SESSION: Final[dict[str, Any]] = {
    "summary": "Reset a session",
    "description": (
        "Lets the session start afresh: its variables, imports and files are dropped, and an execution that runs in it "
        "is cancelled. Its limits stay."
    ),
    "response_model": None,
    "status_code": 202,
    "responses": {
        202: describe_response("The session will start afresh", "Session", busy={**SESSION, "resets": 1}),
        **describe_problems(404),
    },
}
"""`POST /v1/sessions/{name}/reset`."""

DELETE_SESSION: Final[dict[str, Any]] = {
    "summary": "Delete a session",
    "description": "Ends the session with its pod. A later execution of the same name starts a new one.",
    "response_model": None,
    "status_code": 204,
    "responses": {204: {"description": "The session is deleted"}, **describe_problems(404)},
}
"""`DELETE /v1/sessions/{name}`."""

MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [
    (NewSession, "validation"),
    (Session, "serialization"),
    (SessionList, "serialization"),
]
"""Schemas of bodies."""
