"""Examples of executions in the OpenAPI document, and what only their routes respond with."""

from typing import Any, Final

from mcp_exec_gateway.core.openapi import EVENT, REF, Examples, show

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
_LISTED: Final[dict[str, Any]] = {
    name: value for name, value in _SUCCEEDED.items() if name not in ("output", "durations", "usage", "toolCalls")
}
"""An execution in a list."""
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
EXAMPLES: Final[Examples] = {
    "NewExecution": _NEW_EXECUTIONS,
    "Execution": show(succeeded=_SUCCEEDED, failed=_FAILED, pending=_PENDING),
    "Execution 202": show(pending=_PENDING),
    "ExecutionList": show(page={"items": [_LISTED], "continue": "WzE3OTUsICJleGVjLTAxIl0"}),
}
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
EVENT_STREAM: Final[dict[str, Any]] = {
    "content": {
        "text/event-stream": {
            "schema": {"type": "string", "description": "Server-sent events. The `data` of each is an Event as JSON."},
            "example": EVENTS,
        },
        "application/x-ndjson": {"schema": {"$ref": REF + EVENT}},
    }
}
"""Response with an execution's events."""
LOCATION: Final = {"Location": {"schema": {"type": "string"}, "description": "Path of the execution"}}
"""Headers of a response about an execution that continues."""
