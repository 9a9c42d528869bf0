"""Metrics of the operator, in a registry of their own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry

from mcp_exec_api.code_execution import Usage
from mcp_exec_common.process.metrics import MetricsBase

_POOL: Final = ("namespace", "pool")
_TOKENS: Final = ("namespace", "use_case")
_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900, 3600)

_LONG_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
_MEMORY_BYTES: Final = tuple(2**exponent for exponent in range(24, 36))
"""From 16 MiB to 32 GiB."""
_CODE_BYTES: Final = tuple(4**exponent for exponent in range(3, 10))
"""From 64 bytes to 256 KiB."""


M = TypeVar("M")


class Metrics(MetricsBase):
    """All metrics. Their labels have few values: phases, reasons, stages, and names of pools."""

    def __init__(self) -> None:
        super().__init__("mcp_exec_")
        self.declare_process("operator")
        self._of_features: dict[object, Any] = {}
        self.executions = self.counter("executions", "Finished executions", "phase", "reason", "start", *_POOL)
        self.code_findings = self.counter(
            "code_findings", "Findings of the code check before a run", *_POOL, "rule", "mode"
        )
        self.stages = self.histogram(
            "execution_stage_seconds",
            "Seconds that executions spend in each stage",
            "stage",
            *_POOL,
            buckets=_SECONDS,
        )
        self.cpu_seconds = self.histogram(
            "execution_cpu_seconds",
            "CPU seconds of the code of executions, as their sandboxes measured it",
            *_POOL,
            buckets=_LONG_SECONDS,
        )
        self.peak_memory = self.histogram(
            "execution_peak_memory_bytes",
            "Peak memory of executions in bytes, as their sandboxes measured it",
            *_POOL,
            buckets=_MEMORY_BYTES,
        )
        self.sandbox_seconds = self.histogram(
            "execution_sandbox_seconds",
            "Seconds that executions had their sandboxes",
            *_POOL,
            buckets=_LONG_SECONDS,
        )
        self.code_bytes = self.histogram(
            "execution_code_bytes", "Bytes of the code of executions that had a sandbox", *_POOL, buckets=_CODE_BYTES
        )
        self.tokens_kept = self.counter(
            "tokens_kept", "Estimated tokens of tool results that stayed in sandboxes", *_TOKENS
        )
        self.tokens_saved = self.counter(
            "tokens_saved_estimate",
            "Estimated tokens that executions saved in comparison with direct calls of the same tools",
            *_TOKENS,
        )
        self.tokens_lost = self.counter(
            "tokens_lost_estimate",
            "Estimated tokens that executions cost in addition to direct calls of the same tools",
            *_TOKENS,
        )
        self.active = self.gauge("executions_active", "Executions that are waiting or running")
        self.sessions = self.gauge("sessions", "Sessions by phase", "namespace", "phase")
        self.pods = self.gauge("pool_pods", "Pods of a pool by state", *_POOL, "state")
        self.queued = self.gauge("pool_queued", "Executions that wait for a pod", *_POOL)
        self.pool_desired = self.gauge("pool_desired", "Pods that should be warm or starting", *_POOL)
        self.pool_arrivals = self.gauge(
            "pool_arrivals_per_second", "Executions per second that ask for a pod; the pool is scaled by it", *_POOL
        )
        self.pool_startup = self.gauge(
            "pool_startup_p95_seconds",
            "95th percentile of the seconds until a pod is warm; the pool is scaled by it",
            *_POOL,
        )
        self.pool_hits = self.gauge("pool_warm_hit_ratio", "Share of recent executions that found a warm pod", *_POOL)
        self.pool_reuse = self.gauge(
            "pool_reuse_ratio", "Share of recent executions that got a pod of their owner", *_POOL
        )
        self.recycles = self.counter(
            "pod_recycles",
            "Pods cleaned after an execution: kept for their owner, ended because a limit was reached or others "
            "needed the place, or failed",
            *_POOL,
            "outcome",
        )
        self.pod_starts = self.histogram(
            "pod_start_seconds", "Seconds from a pod's creation until its supervisor answered", *_POOL, buckets=_SECONDS
        )
        self.pod_failures = self.counter(
            "pod_failures", "Pods that the API server refused or that failed", *_POOL, "reason"
        )
        self.events = self.counter("watch_events", "Events received from watches", "kind")
        self.events_dropped = self.counter(
            "events_dropped",
            "Events about executions that were not created, because their namespace had too many",
            "reason",
        )
        self.writes = self.counter("api_writes", "Writes to the API server", "what")
        self.key_steps = self.counter("sandbox_key_steps", "Steps of rotations of the sandbox key", "step")
        self.resyncs = self.histogram("resync_seconds", "Duration of resyncs in seconds", buckets=_SECONDS)
        self.resync_failures = self.counter("resync_failures", "Resyncs that failed")
        self.missed = self.counter("watch_missed", "Objects that a resync found and no watch had reported")
        self.records = self.counter(
            "records_total",
            "Records of finished executions by outcome: stored, refused by the store, missed as the execution was "
            "deleted before, and failed attempts, which are repeated.",
            "outcome",
        )
        self.records_pending = self.gauge(
            "records_pending", "Finished executions that are kept because they have no record yet."
        )
        self.deleted_early = self.counter(
            "executions_deleted_early",
            "Finished executions that were deleted before their TTL, because their namespace stored too much",
            "namespace",
        )
        self.refused_namespaces = self.gauge(
            "namespaces_refused",
            "Namespaces of the release that are not served: another release serves them, or rights are missing",
        )
        self.leader = self.gauge("leader", "1 if this operator is the leader, 0 if it is the standby")

    def of(self, feature: Callable[[CollectorRegistry], M]) -> M:
        """Return the metrics of a feature, which all namespaces share."""
        if feature not in self._of_features:
            self._of_features[feature] = feature(self.registry)
        found: M = self._of_features[feature]
        return found

    def observe_usage(self, usage: Usage, *, namespace: str, pool: str, use_case: str, saving: int) -> None:
        """Count what one execution used, and the estimated tokens that it saved, or lost if they are negative.

        What is not known is left out.
        """
        for metric, value in (
            (self.cpu_seconds, usage.cpu_seconds),
            (self.peak_memory, usage.peak_memory_bytes),
            (self.sandbox_seconds, usage.sandbox_seconds),
            (self.code_bytes, usage.code_bytes),
        ):
            if value is not None:
                metric.labels(namespace, pool).observe(value)
        if usage.tokens is not None:
            self.tokens_kept.labels(namespace, use_case).inc(usage.tokens.kept or 0)
            self.tokens_saved.labels(namespace, use_case).inc(max(saving, 0))
            self.tokens_lost.labels(namespace, use_case).inc(max(-saving, 0))

    @contextmanager
    def time_resync(self) -> Iterator[None]:
        """Measure the duration of one resync."""
        began = perf_counter()
        yield
        self.resyncs.observe(perf_counter() - began)
