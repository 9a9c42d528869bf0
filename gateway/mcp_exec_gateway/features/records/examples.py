"""Examples of records, usage and audit records in the OpenAPI document."""

from typing import Any, Final

from mcp_exec_gateway.core.openapi import Examples, show

_CALL: Final[dict[str, Any]] = {
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
"""A call in the table `calls` of the records."""
_MODEL_USAGE: Final[dict[str, Any]] = {
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
_SANDBOX_USAGE: Final[dict[str, Any]] = {
    "executions": 43,
    "failed": 3,
    "seconds": 60.2,
    "cpuSeconds": 4.1,
    "gibSeconds": 6.2,
    "unmeasured": 0,
    "cost": 0.000041,
    "costs": {"processor": 0.000034, "memory": 0.000007},
}
_USAGE_GROUP: Final[dict[str, Any]] = {
    "key": "filtering",
    "models": [_MODEL_USAGE],
    "sandboxes": _SANDBOX_USAGE,
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
_RECORD: Final[dict[str, Any]] = {
    "id": "c-01k9x3v5t8q2-1",
    "at": "2026-11-21T20:00:01.000000Z",
    "namespace": "agents",
    "execution": "exec-01k9x3v5t8q2",
    "caller": "team-a",
    "server": "expenses",
    "tool": "get_expenses",
    "outcome": "ok",
}
"""An audit record of a tool call."""
EXAMPLES: Final[Examples] = {
    "NewUsageReport": show(
        task={
            "id": "task-17",
            "model": "claude-sonnet-5-5",
            "mode": "code",
            "turns": 3,
            "inputTokens": 5200,
            "outputTokens": 640,
            "counted": "provider",
            "success": True,
        }
    ),
    "NewFeedback": show(rating={"id": "rating-17", "rating": 5, "comment": "found all of them"}),
    "RecordList": show(calls={"items": [_CALL], "next": None}),
    "KeyUseList": show(one={"items": [{"name": "team-a", "lastUsedAt": "2026-11-21T20:00:00.000000Z"}]}),
    "UsageReport": show(
        one={
            "by": "use-case",
            "since": "2026-10-24T00:00:00.000000Z",
            "until": "2026-11-23T00:00:00.000000Z",
            "currency": "USD",
            "isComplete": True,
            "groups": [_USAGE_GROUP],
            "total": {"cost": 1.008041, "models": 1.008, "sandboxes": _SANDBOX_USAGE},
            "conversations": {"total": 40, "withCode": 12, "codeShare": 0.3},
        }
    ),
    "CallList": show(page={"items": [_RECORD], "next": "eyJ1bnRpbCI6IjIwMjYifQ=="}),
}
