"""The OpenAPI document: the operations of all routes, schemas of their bodies, and examples of both."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, get_args

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from mcp_exec_api.wire.events import STREAM_EVENTS, StreamEvent
from mcp_exec_api.wire.problems import ProblemDetails
from mcp_exec_gateway.http.request_body import FIELDS_SET_LATER
from mcp_exec_gateway.openapi.examples import EXAMPLES, PROBLEMS
from mcp_exec_gateway.openapi.operations import EVENT, REF, OperationRoute, describe_problem

TITLE: Final = "mcp-exec gateway"
VERSION: Final = "v1alpha1"
DESCRIPTION: Final = """\
Runs code in warm, single-use sandbox pods. A request that waits receives **200** when the execution has ended, also if
it failed: `phase` has the outcome. **202** with a `Location` means that the execution continues. Errors of the request
itself are problem details (RFC 9457).

If a client disconnects while it waits, its execution is cancelled, unless the request has `onDisconnect=continue`.
"""
_NEW_EXECUTION: Final = "NewExecution"


def build_document(routers: Sequence[APIRouter]) -> dict[str, Any]:
    """Build the document of these routers' routes."""
    routes = [route for router in routers for route in router.routes]
    document = get_openapi(title=TITLE, version=VERSION, description=DESCRIPTION, routes=routes)
    components = document["components"]
    components["schemas"] |= _build_schemas(list_request_models(routers), list_response_models(routers))
    components["responses"] = {_name_problem(status): describe_problem(status) for status in PROBLEMS}
    for operation in (operation for methods in document["paths"].values() for operation in methods.values()):
        _add_examples("", operation.get("requestBody", {}))
        for status, response in operation["responses"].items():
            _add_examples(status, response)
        operation["responses"] = {
            status: _share_problem(int(status), operation["responses"][status])
            for status in sorted(operation["responses"])
        }
    return document


def list_request_models(routers: Sequence[APIRouter]) -> list[type[BaseModel]]:
    """Return the models of all JSON bodies that the routes accept."""
    routes = [route for router in routers for route in router.routes if isinstance(route, OperationRoute)]
    return [route.body_model for route in routes if route.body_model is not None]


def list_response_models(routers: Sequence[APIRouter]) -> list[type[BaseModel]]:
    """Return the models of all JSON bodies that the routes respond with."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    models = [route.response_model for route in routes]
    return [next(iter(get_args(model)), model) for model in models if model is not None]


def _build_schemas(requests: Sequence[type[BaseModel]], responses: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """Build the schemas of all bodies at once, so that a name has one meaning. FastAPI sees only those of responses."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in requests]
    sent: list[type[BaseModel]] = [*responses, ProblemDetails, *STREAM_EVENTS]
    models += [(model, "serialization") for model in sent]
    _, document = models_json_schema(models, ref_template=REF + "{model}")
    schemas: dict[str, Any] = document["$defs"]
    references = {kind: REF + event.__name__ for event in STREAM_EVENTS for kind in _list_types(event)}
    schemas[EVENT] = {
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


def _add_examples(status: str, body: dict[str, Any]) -> None:
    """Add the examples of a body's schema, or those that it has with this status."""
    for content, name in _list_schemas(body):
        if found := EXAMPLES.get(f"{name} {status}", EXAMPLES.get(name)):
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
