"""Examples in the OpenAPI document: of the bodies of requests and responses, and of problems."""

from typing import Any, Final

from mcp_exec_api.constants import API_VERSION
from mcp_exec_api.wire.version import RELEASE

_SUCCEEDED: Final[dict[str, Any]] = {
    "name": "exec-01k9x3v5t8q2",
    "namespace": "agents",
    "pool": "default",
    "caller": "team-a",
    "description": "Expenses over $100",
    "labels": {"report": "weekly"},
    "conversation": "c-42",
    "useCase": "filtering",
    "phase": "Succeeded",
    "reason": "",
    "createdAt": "2026-11-21T20:00:00.000000Z",
    "start": "Warm",
    "podName": "default-7k2mq",
    "durations": {"queued": 1.2, "bind": 2.1, "dispatch": 1.8, "run": 12.4, "collect": 2.0, "total": 19.9},
    "usage": {"cpuSeconds": 0.011, "peakMemoryBytes": 31457280, "sandboxSeconds": 0.017, "codeBytes": 142},
    "output": {
        "stdout": "17 of 1000 are over $100\n",
        "stderr": "",
        "result": {"total": 4210.5},
        "stdoutBytes": 25,
        "stderrBytes": 0,
        "truncated": False,
    },
    "toolCalls": {
        "total": 1,
        "failed": 0,
        "byTool": {"expenses.get_expenses": 1},
        "bytesIn": 118230,
        "bytesKept": 118143,
        "complete": True,
    },
}
"""An execution that succeeded."""
_FAILED: Final[dict[str, Any]] = {
    **{name: _SUCCEEDED[name] for name in ("namespace", "pool", "caller", "createdAt", "start")},
    "name": "exec-01k9x3vd0m7r",
    "phase": "Failed",
    "reason": "UserError",
    "output": {"stdout": "", "stderr": "", "stdoutBytes": 0, "stderrBytes": 0, "truncated": False},
    "error": {
        "type": "ZeroDivisionError",
        "message": "division by zero",
        "line": 1,
        "traceback": 'Traceback (most recent call last):\n  File "<agent>", line 1, in <module>\n',
    },
}
"""An execution whose code raised an exception."""
_PENDING: Final[dict[str, Any]] = {
    **{name: _SUCCEEDED[name] for name in ("name", "namespace", "pool", "caller", "createdAt")},
    "phase": "Pending",
    "reason": "PoolAtCapacity",
    "queue": {"position": 12, "of": 40, "expectedWaitSeconds": 6.0},
}
"""An execution that waits for a pod."""
_APPROVAL: Final[dict[str, Any]] = {
    "id": "apr-7k2mq",
    "tool": "github.merge_pull_request",
    "arguments": '{"owner": "acme", "pull_number": 17, "repo": "site"}',
    "argumentsDigest": "sha256:ca27c14151d6f3aa5321f43b3b2d4f1b6d1c8f1f9e1c2a7ad8f0f5be8e5f1a46",
    "argumentsBytes": 47,
    "argumentsComplete": True,
    "state": "Pending",
    "requestedAt": "2026-11-21T20:00:01.000000Z",
    "expiresAt": "2026-11-21T20:05:01.000000Z",
}
"""A pending approval."""
_DECIDED: Final[dict[str, Any]] = {**_APPROVAL, "state": "Approved", "decidedBy": "release-team"}
"""An approved tool call."""
_PENDING_APPROVAL: Final[dict[str, Any]] = {
    **_APPROVAL,
    "execution": "exec-01k9x3v5t8q2",
    "namespace": "agents",
    "caller": "team-a",
}
"""A pending approval, with its execution."""
_FOUND: Final[list[dict[str, Any]]] = [
    {
        "name": "create_pull_request",
        "server": "github",
        "description": "Create a new pull request in a GitHub repository",
        "import": "from servers.github import create_pull_request",
    }
]
"""Results of a search for tools."""
_TOOLS: Final[dict[str, Any]] = {
    "server": "context7",
    "tools": [
        {
            "name": "query-docs",
            "description": "Retrieves up-to-date documentation of a library",
            "inputSchema": {
                "type": "object",
                "properties": {"libraryId": {"type": "string"}, "query": {"type": "string"}},
                "required": ["libraryId", "query"],
            },
            "annotations": {"readOnlyHint": True},
        }
    ],
}
"""Tools of one server."""
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
_STATS: Final[dict[str, Any]] = {
    "namespace": "agents",
    "caller": "team-a",
    "executions": {"active": 12, "own": 3},
    "pools": [
        {
            "name": "default",
            "memoryBytes": 536870912,
            "cpus": 1.0,
            "runtime": "gvisor",
            "maxTimeoutSeconds": 300,
            "maxPods": 100,
            "warm": 3,
            "starting": 0,
            "busy": 12,
            "queued": 0,
            "maxQueued": 1000,
            "python": "3.11.2",
            "libraries": [],
        }
    ],
    "servers": [{"name": "expenses", "tools": 3}, {"name": "github", "tools": 26}],
    "tools": 29,
    "sessions": {"own": 2, "limit": 20},
    "limits": {"maxConcurrent": 50},
    "gateway": {"maxWaitSeconds": 310.0, "maxBodyBytes": 1048576},
}
"""Statistics of a namespace."""
_LISTED: Final[dict[str, Any]] = {
    name: value for name, value in _SUCCEEDED.items() if name not in ("output", "durations", "usage", "toolCalls")
}
"""An execution in a list."""
EVENTS: Final = """\
id: 1.0.0.0
event: status
data: {"id":"1.0.0.0","seq":1,"at":"2026-11-21T20:00:00.004000Z","type":"status","phase":"Running"}

id: 2.6.0.0
event: stdout
data: {"id":"2.6.0.0","seq":2,"at":"2026-11-21T20:00:00.005000Z","type":"stdout","text":"hello\\n"}

id: 3.6.0.2
event: end
data: {"id":"3.6.0.2","seq":3,"at":"2026-11-21T20:00:00.006000Z","type":"end","phase":"Succeeded","reason":""}

"""
"""A complete stream of server-sent events."""
_NEW_EXECUTIONS: Final[dict[str, Any]] = {
    "hello": {"summary": "The minimum", "value": {"code": "print('hello')"}},
    "context": {
        "summary": "Data is passed in the context, not inside the code",
        "value": {
            "code": "big = [r for r in rows if r['amount'] > 100]\nprint(len(big))\nsum(r['amount'] for r in big)",
            "context": {"rows": [{"amount": 50}, {"amount": 250}]},
            "poolRef": {"name": "default"},
            "timeoutSeconds": 10,
            "limits": {"outputBytes": 65536},
            "ttlSecondsAfterFinished": 600,
        },
    },
    "identified": {
        "summary": "Name, labels and conversation identify the execution",
        "value": {
            "code": "print('report')",
            "name": "weekly-report-48",
            "description": "Expenses over $100",
            "labels": {"report": "weekly"},
            "conversation": "c-42",
            "useCase": "filtering",
        },
    },
    "tools": {
        "summary": "The code calls tools, allowed by name or by pattern",
        "value": {
            "code": (
                "from servers.expenses import get_expenses\n"
                "rows = await get_expenses(user_id=user_id)\n"
                "sum(row['amount'] for row in rows)"
            ),
            "context": {"user_id": "u-42"},
            "tools": ["expenses.get_expenses", "filesystem.*"],
            "user": "u-42",
            "limits": {"toolCalls": 20},
        },
    },
}
"""Request bodies that create executions."""
_SESSION: Final[dict[str, Any]] = {
    "name": "analysis",
    "namespace": "agents",
    "pool": "default",
    "caller": "team-a",
    "description": "Sales by region",
    "phase": "Ready",
    "reason": "",
    "executions": 4,
    "queued": 0,
    "memoryBytes": 50331648,
    "idleTimeoutSeconds": 900,
    "maxAgeSeconds": 28800,
    "maxQueued": 16,
    "resets": 0,
    "podName": "default-7k2mq",
    "nodeName": "node-2",
    "createdAt": "2026-11-21T20:00:00.000000Z",
    "startedAt": "2026-11-21T20:00:00.210000Z",
    "lastUsedAt": "2026-11-21T20:04:10.120000Z",
    "expiresAt": "2026-11-21T20:19:10.120000Z",
}
"""A session that waits for an execution."""
_SKILL: Final[dict[str, Any]] = {
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
_ROLLOUT: Final[dict[str, Any]] = {
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
_ASSIGNMENT: Final[dict[str, Any]] = {
    "rollout": "code-mode",
    "unit": "conversation-17",
    "arm": "code",
    "mode": "code",
    "enrolled": True,
    "stage": "quarter",
    "phase": "Progressing",
}
_DIGEST: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_WORKSPACE: Final[dict[str, Any]] = {
    "name": "sales",
    "id": "0c7f5d0c3f0a4f6c8a3f5b1e2d4c6a80",
    "description": "Sales by region",
    "version": 7,
    "etag": "0c7f5d0c3f0a4f6c8a3f5b1e2d4c6a80-7",
    "files": 12,
    "bytes": 48213,
    "maxBytes": 1073741824,
    "maxFiles": 10000,
    "ttlSeconds": 2592000,
    "createdAt": "2026-11-20T20:00:00.000000Z",
    "usedAt": "2026-11-21T20:00:00.000000Z",
    "expiresAt": "2026-12-21T20:00:00.000000Z",
}
_COMMIT: Final[dict[str, Any]] = {
    "version": 8,
    "base": 7,
    "changedFiles": 1,
    "files": 12,
    "bytes": 48290,
    "etag": "0c7f5d0c3f0a4f6c8a3f5b1e2d4c6a80-8",
    "merged": False,
}
_FILE: Final[dict[str, Any]] = {"path": "data/sales.csv", "size": 5120, "sha256": _DIGEST, "mode": 420}
_VERSION: Final[dict[str, Any]] = {
    "version": 7,
    "createdAt": "2026-11-21T20:00:00.000000Z",
    "files": 12,
    "bytes": 48213,
    "changedFiles": 2,
    "execution": "4b1d6f6e-8f0e-4b3c-9a53-0f6c6a2f1e11",
}
_ARTIFACT: Final[dict[str, Any]] = {
    "id": "5d1c0a8e44f1b2c3",
    "name": "sales.png",
    "mediaType": "image/png",
    "bytes": 18231,
    "sha256": _DIGEST,
    "title": "Sales by region",
    "url": "https://gateway.example.com/v1/artifacts/agents/exec-01k9x3v5t8q2/5d1c0a8e44f1b2c3?uid=4b1d6f6e-8f0e-4b3c-"
    "9a53-0f6c6a2f1e11&expires=1795291200&signature=2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "expiresAt": "2026-11-21T20:15:00.000000Z",
}
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
_ARM: Final[dict[str, Any]] = {
    "name": "code",
    "exposed": 232,
    "units": 210,
    "outcomes": 240,
    "failures": 5,
    "errorRate": {"value": 0.021, "low": 0.009, "high": 0.048, "samples": 240},
    "tokens": {"value": 5612.4, "low": 5230.1, "high": 5994.7, "samples": 240},
}
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
_USAGE_GROUP: Final[dict[str, Any]] = {
    "key": "filtering",
    "models": [_MODEL_USAGE],
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


def _show(**values: Any) -> dict[str, Any]:
    """Return examples by their names."""
    return {name: {"value": value} for name, value in values.items()}


EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "NewExecution": _NEW_EXECUTIONS,
    "Execution": _show(succeeded=_SUCCEEDED, failed=_FAILED, pending=_PENDING),
    "Execution 202": _show(pending=_PENDING),
    "ExecutionList": _show(page={"items": [_LISTED], "continue": "WzE3OTUsICJleGVjLTAxIl0"}),
    "NewDecision": _show(approve={"decision": "Approve"}),
    "Approval": _show(approved=_DECIDED),
    "ApprovalList": _show(one={"items": [_APPROVAL]}),
    "PendingApprovalList": _show(one={"items": [_PENDING_APPROVAL], "complete": True}),
    "NewSession": _show(
        named={"name": "analysis", "idleTimeoutSeconds": 1800, "description": "Sales by region"},
    ),
    "Session": _show(ready=_SESSION),
    "Session 201": _show(new={**_SESSION, "phase": "Pending", "executions": 0}),
    "Session 202": _show(busy={**_SESSION, "resets": 1}),
    "SessionList": _show(one={"items": [_SESSION]}),
    "NewSkill": _show(
        code={"name": "profile-table", "description": "Profile a table of rows.", "code": "def run(rows): ..."},
    ),
    "NewApproval": _show(read={"digest": _SKILL["digest"], "comment": "read and tried"}),
    "NewDeprecation": _show(replaced={"comment": "version 2 replaces it"}),
    "Skill": _show(approved={**_SKILL, "code": "def run(rows): ..."}),
    "Skill 201": _show(draft={**_SKILL, "state": "Draft", "uses": 0, "successes": 0}),
    "SkillList": _show(one={"items": [_SKILL]}),
    "WorkspaceSettings": _show(sales={"description": "Sales", "ttlSeconds": 604800}),
    "Workspace": _show(one=_WORKSPACE),
    "WorkspaceList": _show(
        one={"items": [_WORKSPACE], "storedBytes": 90112, "maxStoredBytes": 10737418240, "maxWorkspaces": 100}
    ),
    "WorkspaceFileList": _show(page={"version": 7, "etag": _WORKSPACE["etag"], "items": [_FILE]}),
    "WorkspaceVersionList": _show(one={"items": [_VERSION]}),
    "RestoreRequest": _show(earlier={"version": 5}),
    "CommitResult": _show(one=_COMMIT),
    "ArtifactList": _show(one={"items": [_ARTIFACT]}),
    "NewAssignment": _show(one={"unit": "conversation-17", "user": "ann@example.com"}),
    "Assignment": _show(enrolled=_ASSIGNMENT),
    "NewPromotion": _show(stage={"to": "quarter"}),
    "Rollout": _show(progressing=_ROLLOUT),
    "RolloutList": _show(one={"items": [_ROLLOUT]}),
    "NewOutcome": _show(
        task={"id": "task-17", "unit": "conversation-17", "success": True, "latencyMs": 5400, "tokens": 5840}
    ),
    "RolloutReport": _show(
        two={"rollout": "code-mode", "control": "direct", "confidence": 0.95, "arms": [_ARM]},
    ),
    "NewUsageReport": _show(
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
    "NewFeedback": _show(rating={"id": "rating-17", "rating": 5, "comment": "found all of them"}),
    "RecordList": _show(calls={"items": [_CALL], "next": None}),
    "UsageReport": _show(
        one={
            "by": "use-case",
            "since": "2026-10-24T00:00:00.000000Z",
            "until": "2026-11-23T00:00:00.000000Z",
            "currency": "USD",
            "isComplete": True,
            "groups": [_USAGE_GROUP],
            "conversations": {"total": 40, "withCode": 12, "codeShare": 0.3},
        }
    ),
    "FoundTool": _show(found=_FOUND),
    "ServerTools": _show(one=_TOOLS),
    "CallList": _show(page={"items": [_RECORD], "next": "eyJ1bnRpbCI6IjIwMjYifQ=="}),
    "NamespaceStats": _show(one=_STATS),
    "ReleaseVersion": _show(
        one={
            "version": RELEASE,
            "apiVersions": [API_VERSION],
            "mcpRevisions": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"],
        }
    ),
}
"""Examples by the name of their schema. A response with a status of its own has them as `SCHEMA STATUS`."""
PROBLEMS: Final[dict[int, tuple[str, str, list[dict[str, str]]]]] = {
    400: ("bad-json", "the body is not valid JSON: NaN is not a JSON value", []),
    401: ("unauthenticated", "send 'Authorization: Bearer ' with a valid API key or ServiceAccount token", []),
    403: ("forbidden", "the API key team-a is limited to namespace agents; other was requested", []),
    404: ("not-found", "there is no execution exec-01k9x3v5t8q2 in namespace agents", []),
    406: ("not-acceptable", "events are available as text/event-stream and application/x-ndjson", []),
    408: ("request-timeout", "the body was not complete after 30 seconds", []),
    412: (
        "outdated",
        "If-Match: the workspace has another tag, in version 8; read it again, and repeat the change",
        [],
    ),
    409: ("conflict", "another object has the name exec-01k9x3v5t8q2, which belongs to this Idempotency-Key", []),
    410: ("deleted", "execution exec-01k9x3v5t8q2 was deleted before it ended", []),
    413: ("body-too-large", "the body has more than 1048576 bytes", []),
    415: ("media-type", "the body's media type is text/plain; send application/json", []),
    422: (
        "invalid",
        "timeoutSeconds: 400 is more than the 300 seconds that pool default allows",
        [{"field": "timeoutSeconds", "message": "400 is more than the 300 seconds that pool default allows"}],
    ),
    429: ("too-many", "the API key team-a has 50 unfinished executions, which is its limit", []),
    503: ("unavailable", "the API server failed the request", []),
}
"""Kind, detail and invalid fields of a problem for each status code."""
