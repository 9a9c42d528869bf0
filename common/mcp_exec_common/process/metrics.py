"""Declarations of a process's metrics: one registry, one prefix of names, one line for each metric."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from mcp_exec_api.wire.version import RELEASE


class MetricsBase:
    """Base of classes whose attributes are metrics."""

    def __init__(self, prefix: str, registry: CollectorRegistry | None = None) -> None:
        """Declare metrics in a registry, or in a new one. `prefix` is the begin of their names."""
        self.registry = CollectorRegistry() if registry is None else registry
        self._prefix = prefix
        self._labels: list[tuple[Counter | Gauge | Histogram, set[str]]] = []

    def declare_version(self, component: str) -> None:
        """Add the metric that says which version of a component runs."""
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
