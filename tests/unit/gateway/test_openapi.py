"""The OpenAPI document: schemas of all bodies and events, formats, and ids of operations that do not change."""

from typing import Any

import pytest
from fastapi import FastAPI

from mcp_exec_api.wire.events import STREAM_EVENTS
from mcp_exec_api.wire.tools import ToolCallRecord
from mcp_exec_gateway.openapi import document as openapi
from mcp_exec_gateway.routes import (
    approvals,
    artifacts,
    audit,
    events,
    executions,
    health,
    rollouts,
    sessions,
    stats,
    tools,
    workspaces,
)
from mcp_exec_gateway.routes.records import conversations, outcomes, usage
from mcp_exec_gateway.routes.records import export as records_export

OPERATIONS = {
    "abortRollout": "POST /v1/rollouts/{name}/abort",
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
    "deleteWorkspace": "DELETE /v1/workspaces/{name}",
    "followLink": "GET /v1/artifacts/{namespace}/{name}/{id}",
    "getArchive": "GET /v1/workspaces/{name}/archive",
    "getArtifact": "GET /v1/executions/{name}/artifacts/{id}",
    "getExecution": "GET /v1/executions/{name}",
    "getFile": "GET /v1/workspaces/{name}/files/{path}",
    "getRollout": "GET /v1/rollouts/{name}",
    "getRolloutReport": "GET /v1/rollouts/{name}/report",
    "getSession": "GET /v1/sessions/{name}",
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
    "listTools": "GET /api/v1/mcp/servers/{name}/tools",
    "listVersions": "GET /v1/workspaces/{name}/versions",
    "listWorkspaces": "GET /v1/workspaces",
    "pauseRollout": "POST /v1/rollouts/{name}/pause",
    "promoteRollout": "POST /v1/rollouts/{name}/promote",
    "putArchive": "PUT /v1/workspaces/{name}/archive",
    "putFile": "PUT /v1/workspaces/{name}/files/{path}",
    "putWorkspace": "PUT /v1/workspaces/{name}",
    "resetSession": "POST /v1/sessions/{name}/reset",
    "restoreWorkspace": "POST /v1/workspaces/{name}/restore",
    "reportFeedback": "POST /v1/conversations/{conversation}/feedback",
    "reportOutcome": "POST /v1/rollouts/{name}/outcomes",
    "reportUsage": "POST /v1/conversations/{conversation}/usage",
    "resumeRollout": "POST /v1/rollouts/{name}/resume",
    "searchTools": "GET /api/v1/mcp/tools/search",
    "streamEvents": "GET /v1/executions/{name}/events",
}
"""Ids that generated clients use as names of functions: a change of one breaks them."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    app = FastAPI(title="t", version="1", generate_unique_id_function=openapi.build_operation_id)
    for resource in (
        executions,
        events,
        approvals,
        artifacts,
        sessions,
        workspaces,
        rollouts,
        records_export,
        conversations,
        outcomes,
        usage,
        tools,
        audit,
        stats,
        health,
    ):
        app.include_router(resource.router)
    openapi.add_schemas(app)
    return app.openapi()


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


def test_each_reference_leads_to_a_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert references(document) <= {f"#/components/schemas/{name}" for name in schemas}


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
    ToolCallRecord.model_validate(openapi.examples.RECORD)
