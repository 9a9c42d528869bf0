"""Examples of sessions in the OpenAPI document."""

from typing import Any, Final

from mcp_exec_gateway.core.openapi import Examples, show

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
EXAMPLES: Final[Examples] = {
    "NewSession": show(
        named={"name": "analysis", "idleTimeoutSeconds": 1800, "description": "Sales by region"},
    ),
    "Session": show(ready=_SESSION),
    "Session 201": show(new={**_SESSION, "phase": "Pending", "executions": 0}),
    "Session 202": show(busy={**_SESSION, "resets": 1}),
    "SessionList": show(one={"items": [_SESSION]}),
}
