"""The parts that serve sessions, built together."""

from dataclasses import dataclass
from typing import Self

from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.kube.writes import WritePriority
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.sessions.claims import SessionClaims
from mcp_exec_operator.sessions.controller import SessionController
from mcp_exec_operator.sessions.registry import SessionRegistry
from mcp_exec_operator.sessions.settling import SessionSettler
from mcp_exec_operator.sessions.status_writer import SessionStatusWriter
from mcp_exec_operator.settings import Settings


@dataclass(frozen=True, kw_only=True)
class SessionComponent:
    """All parts of the operator that serve sessions."""

    registry: SessionRegistry
    controller: SessionController
    claims: SessionClaims

    @classmethod
    def create(
        cls,
        *,
        settings: Settings,
        api: OperatorApi,
        pools: PoolRegistry,
        supervisors: SupervisorClient,
        tasks: TaskRegistry,
        write_priority: WritePriority,
    ) -> Self:
        """Build all parts. Nothing runs yet."""
        registry = SessionRegistry(pools=pools, attestor=Attestor(key=supervisors.key))
        settler = SessionSettler(sessions=registry, supervisors=supervisors, tasks=tasks)
        writer = SessionStatusWriter(api=api)
        return cls(
            registry=registry,
            controller=SessionController(
                api=api,
                sessions=registry,
                settler=settler,
                writer=writer,
                supervisors=supervisors,
                tasks=tasks,
                metrics=api.metrics,
                max_unused=settings.max_sessions_per_owner,
                write_priority=write_priority,
            ),
            claims=SessionClaims(
                api=api,
                sessions=registry,
                settler=settler,
                writer=writer,
                tasks=tasks,
                max_per_owner=settings.max_sessions_per_owner,
                max_per_namespace=settings.max_sessions_per_namespace,
            ),
        )
