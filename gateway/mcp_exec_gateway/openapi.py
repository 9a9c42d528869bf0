"""What the OpenAPI document says of each route: summaries, schemas from the shared types, examples, problems."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from mcp_exec_api.execution import CodeExecutionSpec
from mcp_exec_gateway.problems import MEDIA_TYPE, TITLES, ProblemDetails
from mcp_exec_gateway.views import Execution, ExecutionList

DESCRIPTION: Final = """\
Runs code in warm, single-use sandbox pods. A request that waits answers **200** when the execution ended, whatever
its end: `phase` tells whether it succeeded. **202** with a `Location` means that it goes on. Errors of the request
itself are problem details (RFC 9457).

When a client goes away while it waits, its execution is cancelled, unless it sent `onDisconnect=continue`.
"""

_REF: Final = "#/components/schemas/"
_NEW: Final = "NewExecution"
_JSON: Final = "application/json"

SUCCEEDED: Final[dict[str, Any]] = {
    "name": "exec-01k9x3v5t8q2",
    "namespace": "agents",
    "pool": "default",
    "caller": "team-a",
    "phase": "Succeeded",
    "reason": "",
    "createdAt": "2026-11-21T20:00:00.000000Z",
    "start": "Warm",
    "podName": "default-7k2mq",
    "durations": {"queued": 1.2, "bind": 2.1, "dispatch": 1.8, "run": 12.4, "collect": 2.0, "total": 19.9},
    "output": {
        "stdout": "17 of 1000 are over $100\n",
        "stderr": "",
        "result": {"total": 4210.5},
        "stdoutBytes": 25,
        "stderrBytes": 0,
        "truncated": False,
    },
}
FAILED: Final[dict[str, Any]] = {
    **{name: SUCCEEDED[name] for name in ("namespace", "pool", "caller", "createdAt", "start")},
    "name": "exec-01k9x3vd0m7r",
    "phase": "Failed",
    "reason": "UserError",
    "output": {"stdout": "", "stderr": "", "stdoutBytes": 0, "stderrBytes": 0, "truncated": False},
    "error": {
        "type": "ZeroDivisionError",
        "message": "division by zero",
        "line": 1,
        "traceback": 'Traceback (most recent call last):\n  File "<agent>", line 1, in <module>\n',
    },
}
PENDING: Final[dict[str, Any]] = {
    **{name: SUCCEEDED[name] for name in ("name", "namespace", "pool", "caller", "createdAt")},
    "phase": "Pending",
    "reason": "",
}
_LISTED: Final[dict[str, Any]] = {
    name: value for name, value in SUCCEEDED.items() if name not in ("output", "durations")
}
_EVENTS: Final = """\
id: 1.0.0.0
event: status
data: {"id":"1.0.0.0","seq":1,"at":"2026-11-21T20:00:00.004000Z","type":"status","phase":"Running"}

id: 2.6.0.0
event: stdout
data: {"id":"2.6.0.0","seq":2,"at":"2026-11-21T20:00:00.005000Z","type":"stdout","text":"hello\\n"}

id: 3.6.0.2
event: end
data: {"id":"3.6.0.2","seq":3,"at":"2026-11-21T20:00:00.006000Z","type":"end","phase":"Succeeded","reason":""}

"""
_BODIES: Final[dict[str, Any]] = {
    "hello": {"summary": "The least", "value": {"code": "print('hello')"}},
    "context": {
        "summary": "Data travels in the context, never inside the code",
        "value": {
            "code": "big = [r for r in rows if r['amount'] > 100]\nprint(len(big))\nsum(r['amount'] for r in big)",
            "context": {"rows": [{"amount": 50}, {"amount": 250}]},
            "poolRef": {"name": "default"},
            "timeoutSeconds": 10,
            "limits": {"outputBytes": 65536},
            "ttlSecondsAfterFinished": 600,
        },
    },
}
_PROBLEMS: Final[dict[int, tuple[str, str, list[dict[str, str]]]]] = {
    400: ("bad-json", "the body is no JSON that is accepted: NaN is no JSON", []),
    401: ("unauthenticated", "send 'Authorization: Bearer ' with an API key or a ServiceAccount token", []),
    403: ("forbidden", "the API key team-a works in namespace agents alone, not in other", []),
    404: ("not-found", "there is no execution exec-01k9x3v5t8q2 in namespace agents", []),
    406: ("not-acceptable", "events come as text/event-stream or application/x-ndjson", []),
    408: ("request-timeout", "the body was not there after 30 seconds", []),
    409: ("conflict", "another object is named exec-01k9x3v5t8q2, as this Idempotency-Key's would be", []),
    410: ("deleted", "execution exec-01k9x3v5t8q2 was deleted before it ended", []),
    413: ("body-too-large", "the body has more than 1048576 bytes", []),
    415: ("media-type", "the body is text/plain, accepted is application/json", []),
    422: (
        "invalid",
        "timeoutSeconds: 400 is more than the 300 seconds that pool default allows",
        [{"field": "timeoutSeconds", "message": "400 is more than the 300 seconds that pool default allows"}],
    ),
    429: ("too-many", "the API key team-a has 50 executions under way, which is all it may", []),
    503: ("unavailable", "the API server does not answer as it should", []),
}


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: _problem(code) for code in (*codes, 401, 403, 422, 503)}


def _problem(code: int) -> dict[str, Any]:
    kind, detail, errors = _PROBLEMS[code]
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


_LOCATION: Final = {"headers": {"Location": {"schema": {"type": "string"}, "description": "Where it can be followed"}}}

CREATE: Final[dict[str, Any]] = {
    "summary": "Run code",
    "description": "Creates an execution and waits for its end. Nothing is left behind by a request that is refused.",
    "response_model": None,
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {_JSON: {"schema": {"$ref": _REF + _NEW}, "examples": _BODIES}},
        }
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
    "responses": {
        200: _answer("A page", "ExecutionList", page={"items": [_LISTED], "continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEi"}),
        **_problems(410),
    },
}
"""`GET /v1/executions`."""

GET: Final[dict[str, Any]] = {
    "summary": "Get an execution",
    "description": "One execution as it is, or with `wait` as it is at its end or when the wait ends.",
    "response_model": None,
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
        "`status`, `stdout`, `stderr`, `result` and `end`, live from the sandbox and, when it is gone, from the "
        "status. Ids are opaque; a reader that sends the last one it has goes on exactly there. `end` has phase null "
        "and reason Deleted where the execution was deleted. Lines of JSON with `Accept: application/x-ndjson`."
    ),
    "response_model": None,
    "responses": {
        200: {
            "description": "The events, up to `end`",
            "content": {
                "text/event-stream": {"schema": {"type": "string"}, "example": _EVENTS},
                "application/x-ndjson": {"schema": {"type": "string"}},
            },
        },
        204: {"description": "The reader has had them all"},
        **_problems(404, 406, 429),
    },
}
"""`GET /v1/executions/{name}/events`."""

_MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [
    (CodeExecutionSpec, "validation"),
    (Execution, "serialization"),
    (ExecutionList, "serialization"),
    (ProblemDetails, "serialization"),
]


def schemas() -> dict[str, Any]:
    """The schemas of bodies and answers, by name."""
    _, document = models_json_schema(_MODELS, ref_template=_REF + "{model}")
    found: dict[str, Any] = document["$defs"]
    body = found.pop("CodeExecutionSpec")
    del body["properties"]["cancelRequested"]
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
                if path.startswith("/v1/"):
                    for operation in methods.values():
                        operation["security"] = [{"bearer": []}]
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
