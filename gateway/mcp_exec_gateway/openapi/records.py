"""The OpenAPI document of records."""

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from mcp_exec_api.wire.records import NewFeedback, NewOutcome, NewUsageReport, RecordList
from mcp_exec_api.wire.rollouts import RolloutReport
from mcp_exec_gateway.openapi.parts import JSON, REF, describe_problems, describe_response

_CALL: Final = {
    "id": "5f0c4d1e-6c55-4f38-9b02-1f0f3f6d2b11",
    "execution_uid": "0d9b6a52-9f7e-4f0b-8a3e-6a1f5e0d7c21",
    "namespace": "agents",
    "caller": "team-a",
    "mode": "code",
    "server": "github",
    "tool": "list_issues",
    "outcome": "ok",
    "calls": 1,
    "started_at": 1795118400000000,
    "duration_ms": 41,
    "argument_bytes": 64,
    "result_bytes": 81920,
    "stored_at": 1795118401000000,
}


LIST_RECORDS: Final[dict[str, Any]] = {
    "summary": "List records",
    "description": (
        "Returns the namespace's records of one table, oldest first, for an export. A record is complete when it is "
        "stored, and does not change."
    ),
    "response_model": None,
    "responses": {
        200: describe_response("A page", "RecordList", calls={"items": [_CALL], "next": None}),
        **describe_problems(404),
    },
}
"""`GET /v1/records/{table}`."""

_USAGE: Final = {
    "id": "task-17",
    "model": "claude-sonnet-4-5",
    "mode": "code",
    "turns": 3,
    "inputTokens": 5200,
    "outputTokens": 640,
    "counted": "provider",
    "success": True,
}
_FEEDBACK: Final = {"id": "rating-17", "rating": 5, "comment": "found all of them"}


def _describe_report(summary: str, description: str, schema: str, example: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": f"{description} A report that is sent again with the same id counts once.",
        "response_model": None,
        "status_code": 204,
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {JSON: {"schema": {"$ref": REF + schema}, "example": example}},
            },
        },
        "responses": {
            204: {"description": "The report is stored"},
            **describe_problems(400, 404, 408, 413, 415, 429),
        },
    }


REPORT_USAGE: Final = _describe_report(
    "Report what a model used", "Records the tokens of one task of a conversation.", "NewUsageReport", _USAGE
)
"""`POST /v1/conversations/{conversation}/usage`."""
REPORT_FEEDBACK: Final = _describe_report(
    "Report what a person thinks", "Records a rating of a conversation.", "NewFeedback", _FEEDBACK
)
"""`POST /v1/conversations/{conversation}/feedback`."""

REPORT_OUTCOME: Final = {
    **_describe_report(
        "Report an outcome",
        "Records what came of a conversation or task of a unit. The guards and the report of the rollout measure it.",
        "NewOutcome",
        {"id": "task-17", "unit": "conversation-17", "success": True, "latencyMs": 5400, "tokens": 5840},
    )
}
"""`POST /v1/rollouts/{name}/outcomes`."""
_ARM: Final = {
    "name": "code",
    "exposed": 232,
    "units": 210,
    "outcomes": 240,
    "failures": 5,
    "errorRate": {"value": 0.021, "low": 0.009, "high": 0.048, "samples": 240},
    "tokens": {"value": 5612.4, "low": 5230.1, "high": 5994.7, "samples": 240},
}


GET_ROLLOUT_REPORT: Final[dict[str, Any]] = {
    "summary": "Get the report of a rollout",
    "description": (
        "Returns what each arm measured: success, latency, tokens, cost and rating with 95 % confidence intervals "
        "(Wilson's for shares, Student's for means, order statistics for the percentile)."
    ),
    "response_model": None,
    "responses": {
        200: describe_response(
            "The report",
            "RolloutReport",
            two={"rollout": "code-mode", "control": "direct", "confidence": 0.95, "arms": [_ARM]},
        ),
        **describe_problems(404),
    },
}
"""`GET /v1/rollouts/{name}/report`."""

MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [
    (RecordList, "serialization"),
    (NewUsageReport, "validation"),
    (NewFeedback, "validation"),
    (NewOutcome, "validation"),
    (RolloutReport, "serialization"),
]
"""Schemas of bodies."""
