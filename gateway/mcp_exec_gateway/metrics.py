"""The gateway's metrics. Labels are bounded: route templates, HTTP methods, status codes and rules."""

from collections.abc import Callable, Iterator
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
    model_tokens: Counter
    model_cost: Counter
    exposures_dropped: Counter

    @classmethod
    def create(cls, *, count_waits: Callable[[], float], count_streams: Callable[[], float]) -> Self:
        """Create metrics that start at zero. The functions return the values of the two gauges."""
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        prefix = "mcp_exec_gateway_"
        streams = Gauge(prefix + "open_streams", "Open event streams.", registry=registry)
        streams.set_function(count_streams)
        waiters = Gauge(
            prefix + "waiters", "Requests that wait for an execution, event streams included.", registry=registry
        )
        waiters.set_function(count_waits)
        return cls(
            registry=registry,
            requests=Counter(
                prefix + "requests_total",
                "Requests; code 499 if the client disconnected before the response.",
                ["route", "method", "code"],
                registry=registry,
            ),
            request_seconds=Histogram(
                prefix + "request_seconds",
                "Time from a request's headers to the end of its response.",
                ["route"],
                buckets=_BUCKETS,
                registry=registry,
            ),
            stage_seconds=Histogram(
                prefix + "stage_seconds",
                "Time of a request's stages: authenticate the caller, create the execution, wait for its end.",
                ["stage"],
                buckets=_BUCKETS,
                registry=registry,
            ),
            code_findings=Counter(
                prefix + "code_findings_total",
                "Findings in code that was rejected.",
                ["rule"],
                registry=registry,
            ),
            model_tokens=Counter(
                "mcp_exec_model_tokens_total",
                "Tokens that applications reported. counted: by the provider, or an estimate.",
                ["namespace", "mode", "use_case", "kind", "counted"],
                registry=registry,
            ),
            model_cost=Counter(
                "mcp_exec_model_cost_total",
                "Money for the reported tokens, by the price table; tokens without a price are left out.",
                ["namespace", "mode", "use_case", "currency"],
                registry=registry,
            ),
            exposures_dropped=Counter(
                prefix + "exposures_dropped_total",
                "Units of rollouts that have no record of their exposure, because too many waited for one.",
                registry=registry,
            ),
        )

    @contextmanager
    def measure_stage(self, stage: Stage) -> Iterator[None]:
        """Measure one stage of a request."""
        start = perf_counter()
        try:
            yield
        finally:
            self.stage_seconds.labels(stage).observe(perf_counter() - start)
