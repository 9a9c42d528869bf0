"""What the core offers features of a namespace, and what a feature may do in it.

A feature is one folder, `features/NAME`, and one entry of the tuple `FEATURES`. The core imports none of them.
"""

from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.cluster.broker import BrokerDiscovery
from mcp_exec_operator.cluster.kube.api import OperatorApi, WritePriority
from mcp_exec_operator.cluster.kube.observations import CallerProofs
from mcp_exec_operator.core.executions.execution import ExecutionFeature
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.core.resync import PodHolders
from mcp_exec_operator.core.ttl import TTLController
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.settings import Settings


@dataclass(frozen=True, kw_only=True)
class FeatureContext:
    """What the features of one namespace are built of."""

    namespace: str
    settings: Settings
    kube: KubeClient
    api: OperatorApi
    supervisors: SupervisorClient
    broker: BrokerDiscovery | None
    """None if none is configured."""
    attestor: Attestor
    callers: CallerProofs
    metrics: Metrics
    tasks: TaskRegistry
    """Tasks of the namespace, which a shutdown ends."""
    write_priority: WritePriority
    pools: PoolRegistry
    writer: ExecutionStatusWriter
    ttl: TTLController


class Feature:
    """One feature in one namespace. Nothing runs before `running`. What a feature does not override, it does not do."""

    metrics_class: ClassVar[type[Any] | None] = None
    """Class of its metrics, made of a registry. All namespaces share them, and a process serves them from its start."""
    executions: ExecutionFeature | None = None
    """Its share of executions; None if it has none."""
    holders: PodHolders | None = None
    """Its objects that keep pods; None if none do."""

    def __init__(self, context: FeatureContext) -> None:
        """Build all parts."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch what the feature needs while the context lasts."""
        yield

    def list_loops(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return by name what runs from the start, also before the first resync."""
        return {}

    async def prepare(self) -> None:
        """Prepare what must be known after the first resync and before pools delete pods. Bounded in time."""

    def list_serving_loops(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return by name what runs once the first resync has succeeded."""
        return {}

    def observe(self, kind: str, body: Object, *, deleted: bool) -> None:
        """Take in a watch event of an object that is neither an execution nor a pool nor a pod. Never waits."""

    def end_withdrawn(self) -> None:
        """End what lives by a key that is not accepted any more."""

    def close_namespace(self) -> None:
        """End what has pods: the namespace is being deleted."""

    def open_namespace(self) -> None:
        """Serve the namespace again: it was created again."""

    def close(self) -> None:
        """Stop, after all executions."""

    def discard_measures(self) -> None:
        """Drop the series of the namespace, at the end of its service."""
