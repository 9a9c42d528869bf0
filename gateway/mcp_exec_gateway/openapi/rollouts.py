"""The OpenAPI document of rollouts."""

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from mcp_exec_api.wire.rollouts import Assignment, NewAssignment, NewPromotion, Rollout, RolloutList
from mcp_exec_gateway.openapi.parts import JSON, REF, describe_problem, describe_problems, describe_response

ROLLOUT: Final[dict[str, Any]] = {
    "name": "code-mode",
    "namespace": "agents",
    "phase": "Progressing",
    "control": "direct",
    "paused": False,
    "killSwitch": False,
    "stage": "quarter",
    "since": "2026-11-21T20:00:00.000000Z",
    "exposure": "25 users, 25 %",
    "arms": [{"name": "direct", "mode": "direct", "weight": 1}, {"name": "code", "mode": "code", "weight": 1}],
    "stages": [
        {"name": "team", "users": 25, "percent": 0, "manual": True},
        {"name": "quarter", "users": 0, "percent": 25, "durationSeconds": 86400, "manual": False},
    ],
    "guards": [
        {"name": "errors", "metric": "errorRate", "state": "OK", "arm": "code", "value": 0.02, "samples": 210},
    ],
}
"""A rollout in its second stage."""
_ASSIGNMENT: Final = {
    "rollout": "code-mode",
    "unit": "conversation-17",
    "arm": "code",
    "mode": "code",
    "enrolled": True,
    "stage": "quarter",
    "phase": "Progressing",
}

LIST_ROLLOUTS: Final[dict[str, Any]] = {
    "summary": "List rollouts",
    "description": "Returns the namespace's rollouts, ordered by name, from a cache some milliseconds old.",
    "response_model": None,
    "responses": {
        200: describe_response("The rollouts", "RolloutList", one={"items": [ROLLOUT]}),
        **describe_problems(),
    },
}
"""`GET /v1/rollouts`."""

GET_ROLLOUT: Final[dict[str, Any]] = {
    "summary": "Get a rollout",
    "description": "Returns a rollout with its stage, its arms, and what its guards found.",
    "response_model": None,
    "responses": {
        200: describe_response("The rollout", "Rollout", progressing=ROLLOUT),
        **describe_problems(404),
    },
}
"""`GET /v1/rollouts/{name}`."""

ASSIGN_ARM: Final[dict[str, Any]] = {
    "summary": "Get the arm of a unit",
    "description": (
        "Returns the arm of a unit, by a salted hash of it. The same unit keeps its arm while the rollout enrols more "
        "units. It gets the control arm if it is not enrolled, and after a rollback or an abort."
    ),
    "response_model": None,
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                JSON: {
                    "schema": {"$ref": REF + "NewAssignment"},
                    "example": {"unit": "conversation-17", "user": "ann@example.com"},
                }
            },
        },
    },
    "responses": {
        200: describe_response("The arm", "Assignment", enrolled=_ASSIGNMENT),
        409: {**describe_problem(409), "description": "The rollout's spec contradicts itself"},
        **describe_problems(400, 404, 408, 413, 415, 429),
    },
}
"""`POST /v1/rollouts/{name}/assignments`."""


def _describe_change(summary: str, description: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": f"{description} The caller must be an approver of rollouts.",
        "response_model": None,
        "status_code": 202,
        "responses": {
            202: describe_response("The rollout; the operator follows", "Rollout", progressing=ROLLOUT),
            409: {**describe_problem(409), "description": "The rollout has ended"},
            **describe_problems(404),
        },
    }


PROMOTE_ROLLOUT: Final[dict[str, Any]] = {
    **_describe_change("Promote a rollout", "Begins a later stage although the present one is not over."),
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": {"$ref": REF + "NewPromotion"}, "example": {"to": "quarter"}}},
        },
    },
}
"""`POST /v1/rollouts/{name}/promote`."""
PAUSE_ROLLOUT: Final = _describe_change("Pause a rollout", "Stays in the present stage; assignments continue.")
"""`POST /v1/rollouts/{name}/pause`."""
RESUME_ROLLOUT: Final = _describe_change("Resume a rollout", "Lets the stages go on.")
"""`POST /v1/rollouts/{name}/resume`."""
ABORT_ROLLOUT: Final = _describe_change("Abort a rollout", "Gives every unit the control arm at once, for good.")
"""`POST /v1/rollouts/{name}/abort`."""

MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [
    (NewAssignment, "validation"),
    (NewPromotion, "validation"),
    (Assignment, "serialization"),
    (Rollout, "serialization"),
    (RolloutList, "serialization"),
]
"""Schemas of bodies."""
