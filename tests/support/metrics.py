"""The metrics that operator, gateway and broker have, from their own registries."""

from collections.abc import Iterator
from typing import Any, cast

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from mcp_exec_broker.access.approvals import Approvals
from mcp_exec_broker.files.metrics import FilesMetrics
from mcp_exec_broker.metrics import Metrics as BrokerMetrics
from mcp_exec_broker.scanning.scanner import Scanner
from mcp_exec_gateway.metrics import Metrics as GatewayMetrics
from mcp_exec_operator.metrics import Metrics as OperatorMetrics
from mcp_exec_operator.rollouts.record import RolloutMetrics

SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def registries() -> dict[str, CollectorRegistry]:
    """A registry of each process, with all that its parts add."""
    broker = BrokerMetrics()
    FilesMetrics(broker.registry)
    Scanner(registry=broker.registry).close()
    Approvals(kube=cast(Any, None), attestor=cast(Any, None), registry=broker.registry)
    operator = OperatorMetrics()
    RolloutMetrics(operator.registry)
    return {
        "operator": operator.registry,
        "gateway": GatewayMetrics(count_waits=float, count_streams=float).registry,
        "broker": broker.registry,
    }


def series(registry: CollectorRegistry) -> Iterator[tuple[str, set[str]]]:
    """Yield the name of every series of a process, and its labels."""
    for metric in set(registry._collector_to_names):  # noqa: SLF001 - families without samples do not have their labels
        if isinstance(metric, MetricWrapperBase):
            for suffix in SUFFIXES[metric._type or ""]:  # noqa: SLF001
                labels = set(metric._labelnames) | ({"le"} if suffix == "_bucket" else set())  # noqa: SLF001
                yield metric._name + suffix, labels  # noqa: SLF001


def known_series() -> dict[str, set[str]]:
    """The labels of all series of all processes, by name."""
    return {name: labels for registry in registries().values() for name, labels in series(registry)}
