"""The OpenAPI document: the committed page, schemas of all bodies and events, formats, and ids of operations."""

import inspect
import re
from typing import Any

import pytest
from hack.openapi import PAGE, build_page

from mcp_exec_api.wire.events import STREAM_EVENTS
from mcp_exec_api.wire.tools import ToolCallRecord
from mcp_exec_gateway.app import collect_examples, describe_api, list_routers
from mcp_exec_gateway.core.openapi import (
    OperationRoute,
    list_request_models,
    list_response_models,
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return describe_api()


def test_the_page_of_the_contract_is_current() -> None:
    assert PAGE.read_text() == build_page(), "the contract changed: run `make generate` and review the difference"


def test_ids_of_operations_are_unique(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)


def references(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own.union(*map(references, value.values()))


def test_each_reference_leads_to_a_component(document: dict[str, Any]) -> None:
    components = {f"#/components/{kind}/{name}" for kind, named in document["components"].items() for name in named}
    assert references(document) <= components


def test_times_have_their_format(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        for field, each in schema.get("properties", {}).items():
            if field == "at" or field.endswith("At"):
                assert "date-time" in str(each), f"{name}.{field}"


def test_events_and_audit_records_have_schemas(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert len(schemas["Event"]["oneOf"]) == len(STREAM_EVENTS)
    assert {"status", "stdout", "stderr", "tool_call", "end"} <= schemas["Event"]["discriminator"]["mapping"].keys()
    content = document["paths"]["/v1/executions/{name}/events"]["get"]["responses"]["200"]["content"]
    assert content["application/x-ndjson"]["schema"] == {"$ref": "#/components/schemas/Event"}
    assert "Event" in content["text/event-stream"]["schema"]["description"]
    assert schemas["CallList"]["properties"]["items"]["items"] == {"$ref": "#/components/schemas/ToolCallRecord"}
    ToolCallRecord.model_validate(collect_examples()["CallList"]["page"]["value"]["items"][0])


def test_every_json_body_has_an_example_and_nothing_else_has() -> None:
    models = list_request_models(list_routers()) + list_response_models(list_routers())
    assert {name.partition(" ")[0] for name in collect_examples()} == {model.__name__ for model in models}


def test_a_handler_parses_the_body_that_its_route_declares() -> None:
    routes = [route for router in list_routers() for route in router.routes if isinstance(route, OperationRoute)]
    for route in routes:
        parsed = re.findall(r"parse_(?:model|spec)\(\s*(\w+)", inspect.getsource(route.endpoint))
        assert parsed == ([] if route.body_model is None else [route.body_model.__name__]), route.name
