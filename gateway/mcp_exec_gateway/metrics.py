"""The gateway's metrics. Labels are bounded: routes by their templates, methods and codes by what HTTP has."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

Stage = Literal["authenticate", "create", "wait"]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """All metrics, in a registry of their own."""

    registry: CollectorRegistry
    requests: Counter
    request_seconds: Histogram
    stage_seconds: Histogram
    code_findings: Counter
    open_streams: Gauge
    waiters: Gauge

    @classmethod
    def new(cls) -> Self:
        """Metrics that start at zero."""
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        prefix = "mcp_exec_gateway_"
        return cls(
            registry=registry,
            requests=Counter(
                prefix + "requests_total",
                "Requests answered, 499 where the client went away first.",
                ["route", "method", "code"],
                registry=registry,
            ),
            request_seconds=Histogram(
                prefix + "request_seconds",
                "Time from a request's head to the end of its answer.",
                ["route"],
                buckets=_BUCKETS,
                registry=registry,
            ),
            stage_seconds=Histogram(
                prefix + "stage_seconds",
                "Time that a request spent to authenticate, to create its execution, to wait for its end.",
                ["stage"],
                buckets=_BUCKETS,
                registry=registry,
            ),
            code_findings=Counter(
                prefix + "code_findings_total",
                "What stood out in code that was refused for it.",
                ["rule"],
                registry=registry,
            ),
            open_streams=Gauge(prefix + "open_streams", "Event streams that are open.", registry=registry),
            waiters=Gauge(
                prefix + "waiters", "Waits for executions that are under way, streams included.", registry=registry
            ),
        )

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        """Measures one stage of a request."""
        start = perf_counter()
        try:
            yield
        finally:
            self.stage_seconds.labels(stage).observe(perf_counter() - start)
