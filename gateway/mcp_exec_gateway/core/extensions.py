"""What features may add to the core. The core calls it in the order of the features."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.files import Owner
from mcp_exec_api.wire.stats import NamespaceStats
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_gateway.core.auth.callers import Caller, Challenge, KeyObserver, TokenSource


class Admission(Protocol):
    """Checks what a new execution uses of a feature, before the execution is created."""

    async def __call__(self, spec: CodeExecutionSpec, *, owner: Owner, caller: Caller) -> None:
        """Raise HttpProblem if the caller may not use it. The spec is within the limits of caller and pool."""


class Deletion(Protocol):
    """Deletes what a feature stores of a finished execution, before the execution is deleted."""

    async def __call__(self, execution: Object) -> None:
        """Raise HttpProblem if it remains; the execution then remains too."""


class ChangeObserver(Protocol):
    """Observes all changes of executions, before the requests that wait for them."""

    def __call__(self, execution: Object, *, deleted: bool = False) -> None:
        """Observe a change, or an execution of a list. A list has no spec and no output."""


class StatsSource(Protocol):
    """Adds a feature's fields to the statistics of a namespace."""

    async def __call__(self, stats: NamespaceStats, *, caller: Caller) -> NamespaceStats:
        """Return the statistics with the fields."""


class ReflectedCache(Protocol):
    """A cache of one kind of resource in all served namespaces."""

    def build_reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """Build the reflector that fills the cache with the resources of a namespace."""


@dataclass(kw_only=True, eq=False)
class Extensions:
    """What features have added."""

    token_sources: list[TokenSource] = field(default_factory=list)
    challenges: list[Challenge] = field(default_factory=list)
    key_observers: list[KeyObserver] = field(default_factory=list)
    admissions: list[Admission] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    observers: list[ChangeObserver] = field(default_factory=list)
    stats: list[StatsSource] = field(default_factory=list)
    caches: dict[str, ReflectedCache] = field(default_factory=dict)
    """By the kind that each reflects, in the plural."""
    reflectors: dict[str, Reflector] = field(default_factory=dict)
    """Reflectors of no served namespace, by a description of what each reflects."""
    tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=dict)
    """What runs as long as the gateway does, by name."""
