"""Registration of sessions."""

from typing import Final

from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.features.sessions.examples import EXAMPLES
from mcp_exec_gateway.features.sessions.routes import router
from mcp_exec_gateway.features.sessions.service import SessionCache, SessionService


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


SESSIONS: Final = Feature(build=build, routers=(router,), examples=EXAMPLES)
