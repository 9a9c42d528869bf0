"""The OpenAPI document of usage."""

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from mcp_exec_api.wire.usage import UsageReport
from mcp_exec_gateway.openapi.parts import describe_problems, describe_response

_TOKENS: Final = {
    "mode": "code",
    "counted": "provider",
    "tasks": 40,
    "turns": 130,
    "inputTokens": 208000,
    "outputTokens": 25600,
    "cacheReadTokens": 0,
    "cacheWriteTokens": 0,
    "definitionTokens": 0,
    "tokensPerTask": 5840.0,
    "successShare": 0.975,
    "cost": 1.008,
}
_GROUP: Final = {
    "key": "filtering",
    "models": [_TOKENS],
    "sandboxes": {"executions": 43, "failed": 3, "seconds": 60.2, "cpuSeconds": 4.1, "cost": 0.0008},
    "calls": [{"mode": "code", "calls": 129, "failed": 2, "argumentTokens": 4100, "resultTokens": 1320000}],
    "estimates": [
        {
            "mode": "code",
            "other": "direct",
            "tokens": 31000,
            "otherTokens": 1340000,
            "saved": 1310000,
            "lost": 1000,
            "method": "kept-less-code-1",
        }
    ],
}
GET_USAGE: Final[dict[str, Any]] = {
    "summary": "Get usage",
    "description": (
        "Returns what models, sandboxes and tools used in the namespace, and what it cost by the installation's price "
        "table. Numbers of models are those that applications report: exact where the provider counted. What the other "
        "mode would have taken is an estimate from recorded sizes; losses are shown like savings."
    ),
    "response_model": None,
    "responses": {
        200: describe_response(
            "The usage",
            "UsageReport",
            one={
                "by": "use-case",
                "since": "2026-10-24T00:00:00.000000Z",
                "until": "2026-11-23T00:00:00.000000Z",
                "currency": "USD",
                "isComplete": True,
                "groups": [_GROUP],
            },
        ),
        **describe_problems(404),
    },
}
"""`GET /v1/usage`."""

MODELS: Final[list[tuple[type[BaseModel], JsonSchemaMode]]] = [(UsageReport, "serialization")]
"""Schemas of bodies."""
