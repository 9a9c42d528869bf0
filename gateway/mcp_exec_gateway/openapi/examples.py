"""Examples in the OpenAPI document."""

from typing import Any, Final

SUCCEEDED: Final[dict[str, Any]] = {
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
FAILED: Final[dict[str, Any]] = {
    **{name: SUCCEEDED[name] for name in ("namespace", "pool", "caller", "createdAt", "start")},
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
PENDING: Final[dict[str, Any]] = {
    **{name: SUCCEEDED[name] for name in ("name", "namespace", "pool", "caller", "createdAt")},
    "phase": "Pending",
    "reason": "PoolAtCapacity",
    "queue": {"position": 12, "of": 40, "expectedWaitSeconds": 6.0},
}
"""An execution that waits for a pod."""
APPROVAL: Final[dict[str, Any]] = {
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
DECIDED: Final[dict[str, Any]] = {**APPROVAL, "state": "Approved", "decidedBy": "release-team"}
"""An approved tool call."""
PENDING_APPROVAL: Final[dict[str, Any]] = {
    **APPROVAL,
    "execution": "exec-01k9x3v5t8q2",
    "namespace": "agents",
    "caller": "team-a",
}
"""A pending approval, with its execution."""
FOUND: Final[list[dict[str, Any]]] = [
    {
        "name": "create_pull_request",
        "server": "github",
        "description": "Create a new pull request in a GitHub repository",
        "import": "from servers.github import create_pull_request",
    }
]
"""Results of a search for tools."""
TOOLS: Final[dict[str, Any]] = {
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
RECORD: Final[dict[str, Any]] = {
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
STATS: Final[dict[str, Any]] = {
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
LISTED: Final[dict[str, Any]] = {
    name: value for name, value in SUCCEEDED.items() if name not in ("output", "durations", "usage", "toolCalls")
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
BODIES: Final[dict[str, Any]] = {
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
