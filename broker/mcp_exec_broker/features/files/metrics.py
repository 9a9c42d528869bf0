"""Metrics of the store of files. Labels are bounded: namespaces by a maximum number, results by an enumeration."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from prometheus_client import CollectorRegistry

from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_common.process.metrics import MetricsBase

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_MAX_NAMESPACES: Final = 200
_OTHER: Final = "other"


@dataclass
class StoredTotals:
    """What the objects of some owners take."""

    bytes: int = 0
    objects: int = 0

    def add(self, size: int) -> None:
        """Count an object."""
        self.bytes += size
        self.objects += 1

    def merge(self, other: "StoredTotals") -> None:
        """Count what another owner has."""
        self.bytes += other.bytes
        self.objects += other.objects


@dataclass
class CommitOutcome:
    """What came of a commit that was not refused."""

    result: str = "Committed"


class FilesMetrics(MetricsBase):
    """Metrics of commits, fetched contents and the collector."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__("mcp_exec_broker_files_", registry)
        self.commits = self.counter(
            "commits_total",
            "Commits to workspaces by who sent them (execution, request) and result: Committed, Merged, Unchanged, "
            "Repeated, or the reason of the refusal.",
            "source",
            "result",
        )
        self.commit_seconds = self.histogram(
            "commit_seconds",
            "Time of a commit without the upload of contents, refused ones included.",
            "source",
            buckets=_BUCKETS,
        )
        self.fetch_seconds = self.histogram(
            "fetch_seconds", "Time to send a sandbox the contents that it asked for.", buckets=_BUCKETS
        )
        self.fetched_bytes = self.counter("fetched_bytes_total", "Bytes of contents sent to sandboxes.")
        self.stored_bytes = self.gauge(
            "stored_bytes", "Bytes of versions, contents and artifacts at the last look of the collector.", "namespace"
        )
        self.stored_objects = self.gauge(
            "stored_objects",
            "Objects with versions, contents and artifacts at the last look of the collector.",
            "namespace",
        )
        self.collections = self.counter(
            "collections_total", "Looks of the collector at all objects, by outcome: ok, failed.", "outcome"
        )
        self.collection_seconds = self.histogram(
            "collection_seconds", "Time of a look of the collector.", buckets=_BUCKETS
        )
        self.collected_objects = self.counter("collected_objects_total", "Objects that the collector removed.")
        self.collected_bytes = self.counter(
            "collected_bytes_total", "Bytes of contents and artifacts that the collector removed."
        )

    @contextmanager
    def committing(self, source: str) -> Iterator[CommitOutcome]:
        """Record a commit and its time."""
        outcome, started = CommitOutcome(), perf_counter()
        try:
            yield outcome
        except BaseException as error:
            outcome.result = error.reason.value if isinstance(error, FilesRefused) else "Failed"
            raise
        finally:
            self.commits.labels(source, outcome.result).inc()
            self.commit_seconds.labels(source).observe(perf_counter() - started)

    async def fetching(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Record contents while they are sent."""
        started = perf_counter()
        try:
            async for part in parts:
                self.fetched_bytes.inc(len(part))
                yield part
        finally:
            self.fetch_seconds.observe(perf_counter() - started)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Record a look of the collector."""
        started, outcome = perf_counter(), "failed"
        try:
            yield
            outcome = "ok"
        finally:
            self.collections.labels(outcome).inc()
            self.collection_seconds.observe(perf_counter() - started)

    def set_stored(self, totals: Mapping[str, StoredTotals]) -> None:
        """Set what each namespace has: `other` beyond the first 200."""
        shown: dict[str, StoredTotals] = {}
        for number, (namespace, found) in enumerate(sorted(totals.items())):
            shown.setdefault(namespace if number < _MAX_NAMESPACES else _OTHER, StoredTotals()).merge(found)
        self.stored_bytes.clear()
        self.stored_objects.clear()
        for namespace, total in shown.items():
            self.stored_bytes.labels(namespace).set(total.bytes)
            self.stored_objects.labels(namespace).set(total.objects)
