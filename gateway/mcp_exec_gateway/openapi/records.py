"""The OpenAPI document of records."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import JsonSchemaMode

from mcp_exec_gateway.openapi.parts import describe_problems, describe_response

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


class RecordList(BaseModel):
    """A page of records, in the order in which they were stored."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    items: list[dict[str, Any]]
    """Records by column. Times are microseconds since 1970."""
    next: str | None = Field(default=None)
    """Cursor of the next page; null on the last one."""


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

MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [(RecordList, "serialization")]
"""Schemas of bodies."""
