"""Metrics of the operator, in a registry of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from mcp_exec_api.code_execution import Usage

_POOL: Final = ("namespace", "pool")
_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)

_LONG_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)
_MEMORY_BYTES: Final = tuple(2**exponent for exponent in range(24, 36))
"""From 16 MiB to 32 GiB."""
_CODE_BYTES: Final = tuple(4**exponent for exponent in range(3, 10))
"""From 64 bytes to 256 KiB."""


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """All metrics. Their labels have few values: phases, reasons, stages, and names of pools."""

    registry: CollectorRegistry
    executions: Counter
    code_findings: Counter
    stages: Histogram
    cpu_seconds: Histogram
    peak_memory: Histogram
    sandbox_seconds: Histogram
    code_bytes: Histogram
    tokens_kept: Counter
    tokens_saved: Counter
    tokens_lost: Counter
    active: Gauge
    sessions: Gauge
    pods: Gauge
    queued: Gauge
    pool_desired: Gauge
    pool_arrivals: Gauge
    pool_startup: Gauge
    pool_hits: Gauge
    pool_reuse: Gauge
    recycles: Counter
    pod_starts: Histogram
    pod_failures: Counter
    events: Counter
    events_dropped: Counter
    writes: Counter
    resyncs: Histogram
    resync_failures: Counter
    missed: Counter
    records: Counter
    records_pending: Gauge
    deleted_early: Counter
    leader: Gauge

    @classmethod
    def create(cls) -> "Metrics":
        """Return new metrics in a new registry."""
        registry = CollectorRegistry()
        return cls(
            registry=registry,
            executions=Counter(
                "mcp_exec_executions",
                "Finished executions",
                ["phase", "reason", "start", *_POOL],
                registry=registry,
            ),
            code_findings=Counter(
                "mcp_exec_code_findings",
                "Findings of the code check before a run",
                [*_POOL, "rule", "mode"],
                registry=registry,
            ),
            stages=Histogram(
                "mcp_exec_execution_stage_seconds",
                "Seconds that executions spend in each stage",
                ["stage"],
                buckets=_SECONDS,
                registry=registry,
            ),
            cpu_seconds=Histogram(
                "mcp_exec_execution_cpu_seconds",
                "CPU seconds of the code of executions, as their sandboxes measured it",
                _POOL,
                buckets=_LONG_SECONDS,
                registry=registry,
            ),
            peak_memory=Histogram(
                "mcp_exec_execution_peak_memory_bytes",
                "Peak memory of executions in bytes, as their sandboxes measured it",
                _POOL,
                buckets=_MEMORY_BYTES,
                registry=registry,
            ),
            sandbox_seconds=Histogram(
                "mcp_exec_execution_sandbox_seconds",
                "Seconds for which executions had their sandboxes",
                _POOL,
                buckets=_LONG_SECONDS,
                registry=registry,
            ),
            code_bytes=Histogram(
                "mcp_exec_execution_code_bytes",
                "Bytes of the code of executions that had a sandbox",
                _POOL,
                buckets=_CODE_BYTES,
                registry=registry,
            ),
            tokens_kept=Counter(
                "mcp_exec_tokens_kept",
                "Estimated tokens of tool results that stayed in sandboxes",
                ["namespace", "use_case"],
                registry=registry,
            ),
            tokens_saved=Counter(
                "mcp_exec_tokens_saved_estimate",
                "Estimated tokens that executions saved in comparison with direct calls of the same tools",
                ["namespace", "use_case"],
                registry=registry,
            ),
            tokens_lost=Counter(
                "mcp_exec_tokens_lost_estimate",
                "Estimated tokens that executions cost in addition to direct calls of the same tools",
                ["namespace", "use_case"],
                registry=registry,
            ),
            active=Gauge("mcp_exec_executions_active", "Executions that are waiting or running", registry=registry),
            sessions=Gauge("mcp_exec_sessions", "Sessions by phase", ["namespace", "phase"], registry=registry),
            pods=Gauge("mcp_exec_pool_pods", "Pods of a pool by state", [*_POOL, "state"], registry=registry),
            queued=Gauge("mcp_exec_pool_queued", "Executions that wait for a pod", _POOL, registry=registry),
            pool_desired=Gauge(
                "mcp_exec_pool_desired", "Pods that should be warm or starting", _POOL, registry=registry
            ),
            pool_arrivals=Gauge(
                "mcp_exec_pool_arrivals_per_second",
                "Executions per second that ask for a pod; the pool is scaled by it",
                _POOL,
                registry=registry,
            ),
            pool_startup=Gauge(
                "mcp_exec_pool_startup_p95_seconds",
                "95th percentile of the seconds until a pod is warm; the pool is scaled by it",
                _POOL,
                registry=registry,
            ),
            pool_hits=Gauge(
                "mcp_exec_pool_warm_hit_ratio",
                "Share of recent executions that found a warm pod",
                _POOL,
                registry=registry,
            ),
            pool_reuse=Gauge(
                "mcp_exec_pool_reuse_ratio",
                "Share of recent executions that got a pod of their owner",
                _POOL,
                registry=registry,
            ),
            recycles=Counter(
                "mcp_exec_pod_recycles",
                "Pods cleaned after an execution: kept for their owner, ended because a limit was reached or others "
                "needed the place, or failed",
                [*_POOL, "outcome"],
                registry=registry,
            ),
            pod_starts=Histogram(
                "mcp_exec_pod_start_seconds",
                "Seconds from a pod's creation until its supervisor answered",
                _POOL,
                buckets=_SECONDS,
                registry=registry,
            ),
            pod_failures=Counter(
                "mcp_exec_pod_failures",
                "Pods that the API server refused or that failed",
                [*_POOL, "reason"],
                registry=registry,
            ),
            events=Counter("mcp_exec_watch_events", "Events received from watches", ["kind"], registry=registry),
            events_dropped=Counter(
                "mcp_exec_events_dropped",
                "Events about executions that were not created, because their namespace had too many",
                ["reason"],
                registry=registry,
            ),
            writes=Counter("mcp_exec_api_writes", "Writes to the API server", ["what"], registry=registry),
            resyncs=Histogram(
                "mcp_exec_resync_seconds", "Duration of resyncs in seconds", buckets=_SECONDS, registry=registry
            ),
            resync_failures=Counter("mcp_exec_resync_failures", "Resyncs that failed", registry=registry),
            missed=Counter(
                "mcp_exec_watch_missed", "Objects that a resync found and no watch had reported", registry=registry
            ),
            records=Counter(
                "mcp_exec_records_total",
                "Records of finished executions by outcome: stored, refused by the store, missed as the execution was "
                "deleted before, and failed attempts, which are repeated.",
                ["outcome"],
                registry=registry,
            ),
            records_pending=Gauge(
                "mcp_exec_records_pending",
                "Finished executions that are kept because they have no record yet.",
                registry=registry,
            ),
            deleted_early=Counter(
                "mcp_exec_executions_deleted_early",
                "Finished executions that were deleted before their TTL, because their namespace stored too much",
                ["namespace"],
                registry=registry,
            ),
            leader=Gauge(
                "mcp_exec_leader", "1 if this operator is the leader, 0 if it is the standby", registry=registry
            ),
        )

    def observe_usage(self, usage: Usage, *, namespace: str, pool: str) -> None:
        """Count what one execution used. What is not known is left out."""
        for metric, value in (
            (self.cpu_seconds, usage.cpu_seconds),
            (self.peak_memory, usage.peak_memory_bytes),
            (self.sandbox_seconds, usage.sandbox_seconds),
            (self.code_bytes, usage.code_bytes),
        ):
            if value is not None:
                metric.labels(namespace, pool).observe(value)

    def observe_tokens(self, *, namespace: str, use_case: str, kept: int, saving: int) -> None:
        """Count the estimated tokens of one execution; a negative saving is a loss."""
        labels = (namespace, use_case)
        self.tokens_kept.labels(*labels).inc(kept)
        self.tokens_saved.labels(*labels).inc(max(saving, 0))
        self.tokens_lost.labels(*labels).inc(max(-saving, 0))

    @contextmanager
    def time_resync(self) -> Iterator[None]:
        """Measure the duration of one resync."""
        began = perf_counter()
        yield
        self.resyncs.observe(perf_counter() - began)

    def drop_pool(self, namespace: str, pool: str) -> None:
        """Drop all series of a deleted pool, so that their number stays bounded."""
        for metric in (
            self.executions,
            self.code_findings,
            self.cpu_seconds,
            self.peak_memory,
            self.sandbox_seconds,
            self.code_bytes,
            self.pods,
            self.queued,
            self.pool_desired,
            self.pool_arrivals,
            self.pool_startup,
            self.pool_hits,
            self.pool_reuse,
            self.recycles,
            self.pod_starts,
            self.pod_failures,
        ):
            metric.remove_by_labels({"namespace": namespace, "pool": pool})
