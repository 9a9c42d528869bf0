"""The gateway's metrics. Labels are bounded: route templates, HTTP methods, status codes and rules."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Literal

from mcp_exec_common.process.metrics import MetricsBase

Stage = Literal["authenticate", "create", "wait"]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics(MetricsBase):
    """All metrics, in a registry of their own."""

    def __init__(self, *, count_waits: Callable[[], float], count_streams: Callable[[], float]) -> None:
        """Create metrics that start at zero. The functions return the values of the two gauges."""
        super().__init__("mcp_exec_")
        self.declare_process("gateway")
        self.gauge("gateway_open_streams", "Open event streams.").set_function(count_streams)
        waiters = self.gauge("gateway_waiters", "Requests that wait for an execution, event streams included.")
        waiters.set_function(count_waits)
        self.requests = self.counter(
            "gateway_requests_total",
            "Requests; code 499 if the client disconnected before the response.",
            "route",
            "method",
            "code",
        )
        self.request_seconds = self.histogram(
            "gateway_request_seconds",
            "Time from a request's headers to the end of its response.",
            "route",
            buckets=_BUCKETS,
        )
        self.stage_seconds = self.histogram(
            "gateway_stage_seconds",
            "Time of a request's stages: authenticate the caller, create the execution, wait for its end.",
            "stage",
            buckets=_BUCKETS,
        )
        self.code_findings = self.counter("gateway_code_findings_total", "Findings in code that was rejected.", "rule")
        self.model_tokens = self.counter(
            "model_tokens_total",
            "Tokens that applications reported. counted: by the provider, or an estimate.",
            *("namespace", "mode", "use_case", "kind", "counted"),
        )
        self.model_cost = self.counter(
            "model_cost_total",
            "Money for the reported tokens, by the price table; tokens without a price are left out.",
            *("namespace", "mode", "use_case", "currency"),
        )
        self.exposures_dropped = self.counter(
            "gateway_exposures_dropped_total",
            "Units of rollouts that have no record of their exposure, because too many waited for one.",
        )

    @contextmanager
    def measure_stage(self, stage: Stage) -> Iterator[None]:
        """Measure one stage of a request."""
        start = perf_counter()
        try:
            yield
        finally:
            self.stage_seconds.labels(stage).observe(perf_counter() - start)
