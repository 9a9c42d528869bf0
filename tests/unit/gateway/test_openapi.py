"""The OpenAPI document: schemas of all bodies and events, formats, and ids of operations that do not change."""

import inspect
import re
from typing import Any

import pytest
from hack.openapi import PAGE, build_page

from mcp_exec_api.wire.events import STREAM_EVENTS
from mcp_exec_api.wire.tools import ToolCallRecord
from mcp_exec_gateway.app import ROUTERS
from mcp_exec_gateway.openapi.document import OperationRoute, build_document, list_request_models, list_response_models
from mcp_exec_gateway.openapi.examples import EXAMPLES

OPERATIONS = {
    "abortRollout": "POST /v1/rollouts/{name}/abort",
    "approveSkill": "POST /v1/skills/{name}/versions/{version}/approve",
    "assignArm": "POST /v1/rollouts/{name}/assignments",
    "cancelExecution": "DELETE /v1/executions/{name}",
    "changeFiles": "POST /v1/workspaces/{name}/changes",
    "checkLiveness": "GET /healthz",
    "checkReadiness": "GET /readyz",
    "createExecution": "POST /v1/executions",
    "createSession": "POST /v1/sessions",
    "decideApproval": "POST /v1/executions/{name}/approvals/{id}",
    "deleteFile": "DELETE /v1/workspaces/{name}/files/{path}",
    "deleteSession": "DELETE /v1/sessions/{name}",
    "deleteSkill": "DELETE /v1/skills/{name}/versions/{version}",
    "deleteWorkspace": "DELETE /v1/workspaces/{name}",
    "deprecateSkill": "POST /v1/skills/{name}/versions/{version}/deprecate",
    "exportSkill": "GET /v1/skills/{name}/versions/{version}/archive",
    "followLink": "GET /v1/artifacts/{namespace}/{name}/{id}",
    "getArchive": "GET /v1/workspaces/{name}/archive",
    "getArtifact": "GET /v1/executions/{name}/artifacts/{id}",
    "getExecution": "GET /v1/executions/{name}",
    "getFile": "GET /v1/workspaces/{name}/files/{path}",
    "getRollout": "GET /v1/rollouts/{name}",
    "getRolloutReport": "GET /v1/rollouts/{name}/report",
    "getSession": "GET /v1/sessions/{name}",
    "getSkill": "GET /v1/skills/{name}/versions/{version}",
    "getStats": "GET /v1/stats",
    "getUsage": "GET /v1/usage",
    "getWorkspace": "GET /v1/workspaces/{name}",
    "listApprovals": "GET /v1/executions/{name}/approvals",
    "listArtifacts": "GET /v1/executions/{name}/artifacts",
    "listCalls": "GET /v1/audit",
    "listExecutions": "GET /v1/executions",
    "listFiles": "GET /v1/workspaces/{name}/files",
    "listPendingApprovals": "GET /v1/approvals",
    "listRecords": "GET /v1/records/{table}",
    "listRollouts": "GET /v1/rollouts",
    "listSessions": "GET /v1/sessions",
    "listSkillVersions": "GET /v1/skills/{name}/versions",
    "listSkills": "GET /v1/skills",
    "listTools": "GET /api/v1/mcp/servers/{name}/tools",
    "listVersions": "GET /v1/workspaces/{name}/versions",
    "listWorkspaces": "GET /v1/workspaces",
    "pauseRollout": "POST /v1/rollouts/{name}/pause",
    "promoteRollout": "POST /v1/rollouts/{name}/promote",
    "putArchive": "PUT /v1/workspaces/{name}/archive",
    "putFile": "PUT /v1/workspaces/{name}/files/{path}",
    "putWorkspace": "PUT /v1/workspaces/{name}",
    "reportFeedback": "POST /v1/conversations/{conversation}/feedback",
    "reportOutcome": "POST /v1/rollouts/{name}/outcomes",
    "reportUsage": "POST /v1/conversations/{conversation}/usage",
    "resetSession": "POST /v1/sessions/{name}/reset",
    "restoreWorkspace": "POST /v1/workspaces/{name}/restore",
    "resumeRollout": "POST /v1/rollouts/{name}/resume",
    "saveSkill": "POST /v1/skills",
    "searchTools": "GET /api/v1/mcp/tools/search",
    "streamEvents": "GET /v1/executions/{name}/events",
}
"""Ids that generated clients use as names of functions: a change of one breaks them."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build_document(ROUTERS)


def test_the_page_of_the_contract_is_current() -> None:
    assert PAGE.read_text() == build_page(), "the contract changed: run `make generate` and review the difference"


def operations(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (operation["operationId"], f"{method.upper()} {path}")
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_ids_of_operations_are_unique_and_do_not_change(document: dict[str, Any]) -> None:
    found = operations(document)
    assert len({name for name, _ in found}) == len(found)
    assert dict(found) == OPERATIONS


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
    ToolCallRecord.model_validate(EXAMPLES["CallList"]["page"]["value"]["items"][0])


def test_every_json_body_has_an_example_and_nothing_else_has() -> None:
    models = list_request_models(ROUTERS) + list_response_models(ROUTERS)
    assert {name.partition(" ")[0] for name in EXAMPLES} == {model.__name__ for model in models}


def test_a_handler_parses_the_body_that_its_route_declares() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, OperationRoute)]
    for route in routes:
        parsed = re.findall(r"parse_(?:model|spec)\(\s*(\w+)", inspect.getsource(route.endpoint))
        assert parsed == ([] if route.body_model is None else [route.body_model.__name__]), route.name
