"""Sessions in one namespace."""

from collections.abc import Coroutine, Mapping
from datetime import datetime
from typing import Any

from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.features.sessions.claims import SessionClaims
from mcp_exec_operator.features.sessions.controller import SessionController
from mcp_exec_operator.features.sessions.part import Sessions
from mcp_exec_operator.features.sessions.registry import SessionIndex, SessionRegistry, SessionSettler
from mcp_exec_operator.features.sessions.status import SessionStatusWriter


class SessionsFeature(Feature):
    """Keeps pods for owners across executions. It is the holder of these pods."""

    def __init__(self, context: FeatureContext) -> None:
        """Build all parts. Pools ask the index for the pods that sessions keep."""
        settings, api, tasks = context.settings, context.api, context.tasks
        self.namespace, self.api = context.namespace, api
        index = context.pools.sessions = SessionIndex()
        self.registry = SessionRegistry(index=index, pools=context.pools, attestor=context.attestor)
        settler = SessionSettler(sessions=self.registry, supervisors=context.supervisors, tasks=tasks)
        writer = SessionStatusWriter(api=api)
        self.controller = SessionController(
            namespace=context.namespace,
            api=api,
            sessions=self.registry,
            settler=settler,
            writer=writer,
            tasks=tasks,
            metrics=context.metrics,
            max_unused=settings.max_sessions_per_owner,
            write_priority=context.write_priority,
        )
        claims = SessionClaims(
            api=api,
            sessions=self.registry,
            settler=settler,
            writer=writer,
            tasks=tasks,
            max_per_owner=settings.max_sessions_per_owner,
            max_per_namespace=settings.max_sessions_per_namespace,
        )
        self.executions = Sessions(claims=claims, writer=context.writer)
        self.holders = self

    def list_serving_loops(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return the controller's loop."""
        return {"sessions": self.controller.run()}

    def observe(self, kind: str, body: Object, *, deleted: bool) -> None:
        """Take in an event of a session."""
        if kind == "session":
            self.registry.observe(body, deleted=deleted)

    async def relist(self) -> list[Object]:
        """List the sessions of the namespace. Raises ApiError."""
        return await self.api.list_sessions(self.namespace)

    def replace(self, bodies: list[Object], *, listed_at: datetime) -> int:
        """Process a list of all sessions. Return how many no watch had reported."""
        return self.registry.replace(self.namespace, bodies, listed_at=listed_at)

    def list_pods(self) -> set[ObjectKey]:
        """Return namespace and name of the pods that sessions keep."""
        return self.registry.index.list_pods()

    def end_withdrawn(self) -> None:
        """Look at all sessions."""
        self.registry.check_proofs()

    def close_namespace(self) -> None:
        """Delete the pods of all sessions."""
        self.registry.release_namespace(self.namespace)
