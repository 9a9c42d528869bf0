"""Registration of sessions, with examples of their bodies."""

from typing import Any, Final

from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.core.openapi import Examples, show
from mcp_exec_gateway.features.sessions.routes import router
from mcp_exec_gateway.features.sessions.service import SessionCache, SessionService

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
_EXAMPLES: Final[Examples] = {
    "NewSession": show(
        named={"name": "analysis", "idleTimeoutSeconds": 1800, "description": "Sales by region"},
    ),
    "Session": show(ready=_SESSION),
    "Session 201": show(new={**_SESSION, "phase": "Pending", "executions": 0}),
    "Session 202": show(busy={**_SESSION, "resets": 1}),
    "SessionList": show(one={"items": [_SESSION]}),
}


def build(core: Dependencies) -> None:
    """Build the sessions, which check executions that name one."""
    cache = SessionCache(attestor=core.attestor)
    sessions = SessionService(
        kube=core.kube,
        cache=cache,
        pools=core.pools,
        attestor=core.attestor,
        max_each=core.settings.max_sessions_per_caller,
    )
    core.add(sessions)
    core.extensions.caches["sessions"] = cache
    core.extensions.admissions.append(sessions.admit_execution)
    core.extensions.stats.append(sessions.add_stats)


SESSIONS: Final = Feature(build=build, routers=(router,), examples=_EXAMPLES)
