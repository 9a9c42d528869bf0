"""Declarations of a process's metrics: one registry, one prefix of names, one line for each metric."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from mcp_exec_api.wire.version import RELEASE

MEMORY_LIMIT_FILES: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Limit of a container's memory in cgroups of version 2 and 1."""
_NO_LIMIT: Final = 2**60
"""Version 1 has a number above it if there is no limit."""


def _read_limit(files: Sequence[Path]) -> int | None:
    for file in files:
        with suppress(OSError, ValueError):  # "max" if there is no limit
            limit = int(file.read_text())
            return limit if limit < _NO_LIMIT else None
    return None


class MetricsBase:
    """Base of classes whose attributes are metrics."""

    def __init__(self, prefix: str, registry: CollectorRegistry | None = None) -> None:
        """Declare metrics in a registry, or in a new one. `prefix` is the begin of their names."""
        self.registry = CollectorRegistry() if registry is None else registry
        self._prefix = prefix
        self._labels: list[tuple[Counter | Gauge | Histogram, set[str]]] = []

    def declare_process(self, component: str, *, limit_files: Sequence[Path] = MEMORY_LIMIT_FILES) -> None:
        """Add what each process has: its version, its resources and the limit of its memory.

        `limit_files` are tried in their order.
        """
        # These are a sample more for each counter and histogram, which nothing reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        text = "Limit of the memory of the container, in bytes; none without a limit."
        of_memory = Gauge("mcp_exec_memory_limit_bytes", text, ("component",), registry=self.registry)
        if (limit := _read_limit(limit_files)) is not None:
            of_memory.labels(component).set(limit)
        info = Gauge(
            "mcp_exec_build_info", "1, with the version that runs.", ("component", "version"), registry=self.registry
        )
        info.labels(component, RELEASE).set(1)

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Return a new counter."""
        metric = Counter(self._prefix + name, text, labels, registry=self.registry)
        self._labels.append((metric, set(labels)))
        return metric

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Return a new gauge."""
        metric = Gauge(self._prefix + name, text, labels, registry=self.registry)
        self._labels.append((metric, set(labels)))
        return metric

    def histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float]) -> Histogram:
        """Return a new histogram."""
        metric = Histogram(self._prefix + name, text, labels, buckets=buckets, registry=self.registry)
        self._labels.append((metric, set(labels)))
        return metric

    def drop(self, **labels: str) -> None:
        """Drop the series with these labels from all metrics that have such labels, so that their number is bounded."""
        for metric, names in self._labels:
            if labels.keys() <= names:
                metric.remove_by_labels(labels)
