"""Metrics of the broker. Labels are bounded: servers by a maximum number, outcomes by an enumeration."""

from dataclasses import dataclass, field
from typing import Final, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_MAX_SERVERS: Final = 200


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """All metrics and their registry."""

    registry: CollectorRegistry
    calls: Counter
    call_seconds: Histogram
    overhead_seconds: Histogram
    active: Gauge
    connects: Counter
    connections: Gauge
    listings: Counter
    available: Gauge
    tools: Gauge
    redactions: Counter
    _seconds: dict[str, Histogram] = field(default_factory=dict)

    @classmethod
    def new(cls) -> Self:
        """Return metrics that start at zero."""
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        prefix = "mcp_exec_broker_"
        return cls(
            registry=registry,
            calls=Counter(
                prefix + "calls_total",
                "Ended tool calls by outcome and server: `other` beyond the first 200 servers, empty if unknown.",
                ["server", "outcome"],
                registry=registry,
            ),
            call_seconds=Histogram(
                prefix + "call_seconds",
                "Time from the arrival of a call to its answer, including the wait for an approval.",
                ["server"],
                buckets=_BUCKETS,
                registry=registry,
            ),
            overhead_seconds=Histogram(
                prefix + "overhead_seconds",
                "Time of a call in the broker itself: without the server, an approval, and the wait for a slot.",
                buckets=(0.00025, 0.0005, *_BUCKETS[:10]),
                registry=registry,
            ),
            active=Gauge(prefix + "calls_active", "Calls in progress.", registry=registry),
            connects=Counter(
                prefix + "connects_total",
                "Connections to servers by outcome: ok, failed, lost.",
                ["outcome"],
                registry=registry,
            ),
            connections=Gauge(prefix + "connections", "Open sessions with servers.", registry=registry),
            listings=Counter(
                prefix + "listings_total", "Listings of the tools of a server.", ["outcome"], registry=registry
            ),
            available=Gauge(prefix + "servers_available", "ToolServers that answer.", registry=registry),
            tools=Gauge(prefix + "tools", "Tools of all ToolServers that code may see.", registry=registry),
            redactions=Counter(
                prefix + "credential_redactions_total",
                "Answers that contained credentials of their server, which the broker redacted.",
                registry=registry,
            ),
        )

    def record_call(self, server: str, outcome: str, seconds: float) -> None:
        """Record an ended call; `server` is NAMESPACE/NAME, or empty if the server is unknown."""
        if server not in self._seconds and len(self._seconds) >= _MAX_SERVERS:
            server = "other"
        self.calls.labels(server, outcome).inc()
        histogram = self._seconds.get(server)
        if histogram is None:
            histogram = self._seconds[server] = self.call_seconds.labels(server)
        histogram.observe(seconds)
