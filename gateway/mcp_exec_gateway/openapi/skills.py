"""The OpenAPI document of skills."""

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from mcp_exec_api.wire.skills import NewApproval, NewDeprecation, NewSkill, Skill, SkillList
from mcp_exec_gateway.openapi.parts import JSON, REF, describe_problem, describe_problems, describe_response

SKILL: Final[dict[str, Any]] = {
    "name": "profile-table",
    "version": 2,
    "namespace": "agents",
    "description": "Profile a table of rows.",
    "state": "Approved",
    "import": "from skills.profile_table_v2 import run",
    "author": "team-a",
    "tools": [],
    "tags": ["statistics"],
    "parameters": {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]},
    "digest": "sha256:0f343b0931126a20f133d67c2b018a3b5e4c3f2a1e2d3c4b5a69788796a5b4c3",
    "reviewedBy": "release-team",
    "reviewedAt": "2026-11-21T20:00:01.000000Z",
    "uses": 12,
    "successes": 11,
    "lastUsedAt": "2026-11-21T21:00:01.000000Z",
}
"""An approved version of a skill."""
_NEW: Final = {"name": "profile-table", "description": "Profile a table of rows.", "code": "def run(rows): ..."}


def _describe_body(schema: str, example: dict[str, Any]) -> dict[str, Any]:
    return {
        "requestBody": {"required": True, "content": {JSON: {"schema": {"$ref": REF + schema}, "example": example}}}
    }


SAVE_SKILL: Final[dict[str, Any]] = {
    "summary": "Save a skill",
    "description": (
        "Saves a draft of the caller: from code, from a successful execution of its own, or from a folder. A name that "
        "exists gets a new version. The caller must be allowed all tools that the skill needs."
    ),
    "response_model": None,
    "status_code": 201,
    "openapi_extra": _describe_body("NewSkill", _NEW),
    "responses": {
        201: describe_response("The draft", "Skill", draft={**SKILL, "state": "Draft", "uses": 0, "successes": 0}),
        **describe_problems(400, 404, 408, 413, 415, 429),
    },
}
"""`POST /v1/skills`."""

LIST_SKILLS: Final[dict[str, Any]] = {
    "summary": "List skills",
    "description": "Returns versions of skills without their code: all but drafts of other callers. It is a cache.",
    "response_model": None,
    "responses": {
        200: describe_response("The versions", "SkillList", one={"items": [SKILL]}),
        **describe_problems(),
    },
}
"""`GET /v1/skills`."""

LIST_VERSIONS: Final[dict[str, Any]] = {
    "summary": "List the versions of a skill",
    "description": (
        "Returns the versions of a skill without their code, newest first, at most 1,000: all but drafts of other "
        "callers. It is a cache."
    ),
    "response_model": None,
    "responses": {
        200: describe_response("The versions", "SkillList", one={"items": [SKILL]}),
        **describe_problems(404),
    },
}
"""`GET /v1/skills/{name}/versions`."""

GET_SKILL: Final[dict[str, Any]] = {
    "summary": "Get a version of a skill",
    "description": "Returns one version with its code and instructions.",
    "response_model": None,
    "responses": {
        200: describe_response("The version", "Skill", one={**SKILL, "code": "def run(rows): ..."}),
        **describe_problems(404),
    },
}
"""`GET /v1/skills/{name}/versions/{version}`."""

EXPORT_SKILL: Final[dict[str, Any]] = {
    "summary": "Export a version of a skill",
    "description": "Returns the folder of a version, SKILL.md and scripts/run.py, as a tar archive.",
    "response_model": None,
    "responses": {
        200: {
            "description": "The archive",
            "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
        },
        **describe_problems(404),
    },
}
"""`GET /v1/skills/{name}/versions/{version}/archive`."""

_REVIEWED: Final = {
    "response_model": None,
    "responses": {
        200: describe_response("The version", "Skill", one=SKILL),
        409: {**describe_problem(409), "description": "The version has another content than the one that was read"},
        **describe_problems(400, 404, 408, 413, 415),
    },
}
APPROVE_SKILL: Final[dict[str, Any]] = {
    "summary": "Approve a version of a skill",
    "description": (
        "Lets all executions of the namespace use the version. Only approvers may do this, and by default not the one "
        "who saved it. The digest says which content they read."
    ),
    "openapi_extra": _describe_body("NewApproval", {"digest": SKILL["digest"], "comment": "read and tried"}),
    **_REVIEWED,
}
"""`POST /v1/skills/{name}/versions/{version}/approve`."""
DEPRECATE_SKILL: Final[dict[str, Any]] = {
    "summary": "Deprecate a version of a skill",
    "description": "Lets only executions that name the version use it. Only approvers may do this.",
    "openapi_extra": _describe_body("NewDeprecation", {"comment": "version 2 replaces it"}),
    **_REVIEWED,
}
"""`POST /v1/skills/{name}/versions/{version}/deprecate`."""

DELETE_SKILL: Final[dict[str, Any]] = {
    "summary": "Delete a version of a skill",
    "description": "Deletes a draft of the caller's own, or for approvers any version.",
    "response_model": None,
    "status_code": 204,
    "responses": {204: {"description": "The version is deleted"}, **describe_problems(404)},
}
"""`DELETE /v1/skills/{name}/versions/{version}`."""

MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [
    (NewSkill, "validation"),
    (NewApproval, "validation"),
    (NewDeprecation, "validation"),
    (Skill, "serialization"),
    (SkillList, "serialization"),
]
"""Models of bodies."""
