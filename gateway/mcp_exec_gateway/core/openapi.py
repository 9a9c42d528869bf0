"""The OpenAPI document: what routes declare, schemas of all bodies, and examples.

FastAPI reads parameters from a route's signature and responses from its models. The first line of the docstring is the
summary, the rest is the description. Decorators add what a signature cannot have: the body, which a handler reads after
the caller is authorized (`http/request_body.py`), and the problems.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, get_args

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from mcp_exec_api.wire.events import STREAM_EVENTS, StreamEvent
from mcp_exec_api.wire.problems import PROBLEM_MEDIA_TYPE, PROBLEM_PREFIX, PROBLEM_TITLES, ProblemDetails
from mcp_exec_api.wire.version import RELEASE

TITLE: Final = "mcp-exec gateway"
DESCRIPTION: Final = """\
Runs code in warm, single-use sandbox pods. A request that waits receives **200** when the execution has ended, also if
it failed: `phase` has the outcome. **202** with a `Location` means that the execution continues. Errors of the request
itself are problem details (RFC 9457).

A field of a body that is null is one that is left out, unless it is required or a part of data such as `context`.

If a client disconnects while it waits, its execution is cancelled, unless the request has `onDisconnect=continue`.
"""

REF: Final = "#/components/schemas/"
JSON: Final = "application/json"
TAR: Final = "application/x-tar"
BYTES: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}
EVENT: Final = "Event"
"""Name of the schema of all events of a stream."""
UNCHANGED: Final = {"description": "The content is that of `If-None-Match`"}
"""Response 304."""
_SLOW_BODY: Final = (
    "The body arrived too slowly. It needs a mean of 64 KiB a second, no pause of 40 seconds, and at most 25 minutes"
)
_OF_EVERY_CALLER: Final = (401, 403, 422, 429, 503)
_OF_BODIES: Final = (408, 413, 415)
_ATTRIBUTE: Final = "mcp_exec_operation"

PROBLEMS: Final[dict[int, tuple[str, str, list[dict[str, str]]]]] = {
    400: ("bad-json", "the body is not valid JSON: NaN is not a JSON value", []),
    401: ("unauthenticated", "send 'Authorization: Bearer ' with a valid API key or token", []),
    403: ("forbidden", "the API key team-a is limited to namespace agents; other was requested", []),
    404: ("not-found", "there is no execution exec-01k9x3v5t8q2 in namespace agents", []),
    406: ("not-acceptable", "events are available as text/event-stream and application/x-ndjson", []),
    408: ("request-timeout", "the body was not complete after 30 seconds", []),
    412: (
        "outdated",
        "If-Match: the workspace has another tag, in version 8; read it again, and repeat the change",
        [],
    ),
    409: ("conflict", "another object has the name exec-01k9x3v5t8q2, which belongs to this Idempotency-Key", []),
    410: ("deleted", "execution exec-01k9x3v5t8q2 was deleted before it ended", []),
    413: ("body-too-large", "the body has more than 1048576 bytes", []),
    415: ("media-type", "the body's media type is text/plain; send application/json", []),
    422: (
        "invalid",
        "timeoutSeconds: 400 is more than the 300 seconds that pool default allows",
        [{"field": "timeoutSeconds", "message": "400 is more than the 300 seconds that pool default allows"}],
    ),
    429: ("too-many", "the API key team-a has 50 unfinished executions, which is its limit", []),
    503: ("unavailable", "the API server failed the request", []),
}
"""Kind, detail and invalid fields of a problem for each status code."""

Examples = Mapping[str, Mapping[str, Any]]
"""Examples by the name of their schema. A response with a status of its own has them as `SCHEMA STATUS`."""
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def show(**values: Any) -> dict[str, Any]:
    """Return examples by their names."""
    return {name: {"value": value} for name, value in values.items()}


@dataclass(kw_only=True)
class _Declared:
    """What the decorators of a route declare."""

    model: type[BaseModel] | None = None
    set_later: tuple[str, ...] = ()
    media_type: str = JSON
    problems: dict[int, str | None] = field(default_factory=dict)
    """Description by status. None stands for the title of the kind."""


def accepts(model: type[BaseModel], *, set_later: tuple[str, ...] = ()) -> Callable[[Endpoint], Endpoint]:
    """Declare that the handler reads a JSON body of this model, and which of its fields the handler refuses."""

    def declare(endpoint: Endpoint) -> Endpoint:
        declared = _find_declared(endpoint)
        declared.model, declared.set_later = model, set_later
        declared.problems |= dict.fromkeys((400, *_OF_BODIES))
        return endpoint

    return declare


def accepts_bytes(media_type: str) -> Callable[[Endpoint], Endpoint]:
    """Declare that the handler streams a body of this media type."""

    def declare(endpoint: Endpoint) -> Endpoint:
        declared = _find_declared(endpoint)
        declared.media_type = media_type
        declared.problems |= dict.fromkeys(_OF_BODIES) | {408: _SLOW_BODY}
        return endpoint

    return declare


def problems(*statuses: int | tuple[int, str]) -> Callable[[Endpoint], Endpoint]:
    """Declare problems beyond those of every caller and body, each with its status and optionally a description."""

    def declare(endpoint: Endpoint) -> Endpoint:
        _find_declared(endpoint).problems |= dict(
            status if isinstance(status, tuple) else (status, None) for status in statuses
        )
        return endpoint

    return declare


def build_router(*, prefix: str, tag: str) -> APIRouter:
    """Build the router of a resource whose routes have a caller and declare their operations."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=OperationRoute,
        responses={status: describe_problem(status) for status in _OF_EVERY_CALLER},
        generate_unique_id_function=build_operation_id,
    )


def build_operation_id(route: APIRoute) -> str:
    """Return the id of a route's operation, for generated clients: `list_executions` is listExecutions."""
    first, *rest = route.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class OperationRoute(APIRoute):
    """A route with the operation that its docstring and its decorators declare."""

    body_model: type[BaseModel] | None
    """Model of the JSON body; None without one."""
    set_later: tuple[str, ...]
    """Fields of the model that the body must not have."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        declared = _find_declared(endpoint)
        summary, _, description = (inspect.getdoc(endpoint) or "").partition("\n")
        found = {status: describe_problem(status, text) for status, text in sorted(declared.problems.items())}
        extra = dict(options.pop("openapi_extra", None) or {})
        if declared.model is not None:
            extra["requestBody"] = _describe_body(JSON, {"schema": {"$ref": REF + declared.model.__name__}})
        elif declared.media_type != JSON:
            extra["requestBody"] = _describe_body(declared.media_type, BYTES)
        options |= {
            "summary": summary.removesuffix("."),
            "description": "\n\n".join(" ".join(part.split()) for part in description.strip().split("\n\n")),
            "responses": {**(options.get("responses") or {}), **found},
            "openapi_extra": extra or None,
        }
        super().__init__(path, endpoint, **options)
        self.body_model, self.set_later = declared.model, declared.set_later


def describe_problem(status: int, description: str | None = None) -> dict[str, Any]:
    """Return the response of a problem, with the title of its kind as the default description."""
    kind, detail, errors = PROBLEMS[status]
    example = {
        "type": PROBLEM_PREFIX + kind,
        "title": PROBLEM_TITLES[kind],
        "status": status,
        "detail": detail,
        "errors": errors,
    }
    content = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": REF + "ProblemDetails"}, "example": example}}
    headers = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    response = {"description": description or PROBLEM_TITLES[kind], "content": content}
    return response | {"headers": headers} if status in (429, 503) else response


def describe_bytes(media_type: str) -> dict[str, Any]:
    """Return the content of a response with bytes of this media type."""
    return {"content": {media_type: BYTES}}


def _describe_body(media_type: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {media_type: content}}


def _find_declared(endpoint: Callable[..., Any]) -> _Declared:
    declared: _Declared = vars(endpoint).setdefault(_ATTRIBUTE, _Declared())
    return declared


def build_document(routers: Sequence[APIRouter], examples: Examples) -> dict[str, Any]:
    """Build the document of these routers' routes, with examples of their bodies."""
    routes = [route for router in routers for route in router.routes]
    document = get_openapi(title=TITLE, version=RELEASE, description=DESCRIPTION, routes=routes)
    components = document["components"]
    components["schemas"] |= _build_schemas(routers)
    components["responses"] = {_name_problem(status): describe_problem(status) for status in PROBLEMS}
    for operation in (operation for methods in document["paths"].values() for operation in methods.values()):
        _add_examples(examples, "", operation.get("requestBody", {}))
        for status, response in operation["responses"].items():
            _add_examples(examples, status, response)
        operation["responses"] = {
            status: _share_problem(int(status), operation["responses"][status])
            for status in sorted(operation["responses"])
        }
    return document


def list_request_models(routers: Sequence[APIRouter]) -> list[type[BaseModel]]:
    """Return the models of all JSON bodies that the routes accept."""
    return [route.body_model for route in _list_operations(routers) if route.body_model is not None]


def _list_operations(routers: Sequence[APIRouter]) -> list[OperationRoute]:
    return [route for router in routers for route in router.routes if isinstance(route, OperationRoute)]


def list_response_models(routers: Sequence[APIRouter]) -> list[type[BaseModel]]:
    """Return the models of all JSON bodies that the routes respond with."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    models = [route.response_model for route in routes]
    return [next(iter(get_args(model)), model) for model in models if model is not None]


def _build_schemas(routers: Sequence[APIRouter]) -> dict[str, Any]:
    """Build the schemas of all bodies at once, so that a name has one meaning. FastAPI sees only those of responses."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (model, "validation") for model in list_request_models(routers)
    ]
    sent: list[type[BaseModel]] = [*list_response_models(routers), ProblemDetails, *STREAM_EVENTS]
    models += [(model, "serialization") for model in sent]
    _, document = models_json_schema(models, ref_template=REF + "{model}")
    schemas: dict[str, Any] = document["$defs"]
    references = {kind: REF + event.__name__ for event in STREAM_EVENTS for kind in _list_types(event)}
    schemas[EVENT] = {
        "oneOf": [{"$ref": reference} for reference in dict.fromkeys(references.values())],
        "discriminator": {"propertyName": "type", "mapping": references},
        "description": "An event of an execution's stream.",
    }
    for route in _list_operations(routers):
        for name in route.set_later:
            del schemas[route.body_model.__name__ if route.body_model else ""]["properties"][name]
    schemas["NewExecution"]["description"] = "The code, its limits, and what identifies the execution."
    return schemas


def _list_types(event: type[StreamEvent]) -> tuple[str, ...]:
    return get_args(event.model_fields["type"].annotation)


def _add_examples(examples: Examples, status: str, body: dict[str, Any]) -> None:
    """Add the examples of a body's schema, or those that it has with this status."""
    for content, name in _list_schemas(body):
        if found := examples.get(f"{name} {status}", examples.get(name)):
            content["examples"] = found


def _list_schemas(body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for content in body.get("content", {}).values():
        schema = content.get("schema", {})
        reference = schema.get("items", schema).get("$ref", "")
        yield content, reference.removeprefix(REF)


def _name_problem(status: int) -> str:
    """Return the name of a problem in the document: `not-found` is NotFound."""
    return PROBLEMS[status][0].title().replace("-", "")


def _share_problem(status: int, response: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to the problem of all routes, unless the response is another."""
    if status in PROBLEMS and response == describe_problem(status):
        return {"$ref": f"#/components/responses/{_name_problem(status)}"}
    return response
