"""docs/reference/metrics.md: every metric of each process, from its declarations."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from hack.reference.markdown import GENERATED, build_table, format_code
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from mcp_exec_common.process.metrics import MetricsBase

_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "operator": {}, "gateway": {"count_waits": float, "count_streams": float}, "broker": {},
}  # fmt: skip
"""Arguments of the class `Metrics` of each process."""
SUFFIXES: Final = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
"""What the names of a metric's series end with, by its type."""
_HEAD: Final = f"""{GENERATED}# Metrics

Every metric of operator, gateway and broker. [Monitoring](../platform/monitoring.md#metrics) explains the ones that
matter, with boards and alerts. A histogram has the series `_bucket` (with the label `le`), `_sum` and `_count`. All
processes also have those of Python's client (`process_*`, `python_*`).
"""


def build_registries() -> dict[str, CollectorRegistry]:
    """Build a registry of each process, with all classes of metrics that its modules have."""
    found = {}
    for process, options in _OPTIONS.items():
        package = importlib.import_module(f"mcp_exec_{process}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
        own = importlib.import_module(f"{package.__name__}.metrics").Metrics
        found[process] = registry = own(**options).registry
        for each in MetricsBase.__subclasses__():
            if each is not own and each.__module__.startswith(f"{package.__name__}."):
                cast("Callable[[CollectorRegistry], MetricsBase]", each)(registry)
    return found


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
