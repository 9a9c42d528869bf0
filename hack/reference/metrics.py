"""docs/reference/metrics.md: every metric of each process, from its declarations."""

from collections.abc import Iterator
from typing import Any, Final, cast

from hack.reference.markdown import GENERATED, build_table, format_code
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from mcp_exec_broker.core.access.approvals import Approvals
from mcp_exec_broker.features.files.metrics import FilesMetrics
from mcp_exec_broker.features.scanning.scanner import Scanner
from mcp_exec_broker.metrics import Metrics as BrokerMetrics
from mcp_exec_gateway.metrics import Metrics as GatewayMetrics
from mcp_exec_operator.features.rollouts.record import RolloutMetrics
from mcp_exec_operator.metrics import Metrics as OperatorMetrics

SUFFIXES: Final = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
"""What the names of a metric's series end with, by its type."""
_HEAD: Final = f"""{GENERATED}# Metrics

Every metric of operator, gateway and broker. [Monitoring](../platform/monitoring.md#metrics) explains the ones that
matter, with boards and alerts. A histogram has the series `_bucket` (with the label `le`), `_sum` and `_count`. All
processes also have those of Python's client (`process_*`, `python_*`).
"""


def build_registries() -> dict[str, CollectorRegistry]:
    """Build a registry of each process, with all that its parts add."""
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


def list_metrics(registry: CollectorRegistry) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Yield name without suffix, type, labels and meaning of every metric of a process."""
    for metric in set(registry._collector_to_names):  # noqa: SLF001 - families without samples do not have their labels
        if isinstance(metric, MetricWrapperBase):
            yield metric._name, metric._type or "", tuple(metric._labelnames), metric._documentation  # noqa: SLF001


def build_page() -> str:
    """Build the page."""
    parts = [_HEAD]
    for process, registry in build_registries().items():
        rows = [
            (format_code(name + (SUFFIXES[kind][0] if kind == "counter" else "")), kind, ", ".join(labels), text)
            for name, kind, labels, text in sorted(list_metrics(registry))
        ]
        parts.append(f"\n## {process.capitalize()}\n\n{build_table(('metric', 'type', 'labels', 'meaning'), rows)}")
    return "".join(parts)
