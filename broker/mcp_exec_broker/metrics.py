"""The broker's metrics. Labels are bounded: servers by a number, outcomes by a list."""

from dataclasses import dataclass, field
from typing import Final, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_MOST_SERVERS: Final = 200


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """All metrics, in a registry of their own."""

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
        """Metrics that start at zero."""
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        prefix = "mcp_exec_broker_"
        return cls(
            registry=registry,
            calls=Counter(
                prefix + "calls_total",
                "Tool calls that ended, by server and outcome; `other` and an empty server where there are too many.",
                ["server", "outcome"],
                registry=registry,
            ),
            call_seconds=Histogram(
                prefix + "call_seconds",
                "Time from a call's arrival to its answer, waiting for consent included.",
                ["server"],
                buckets=_BUCKETS,
                registry=registry,
            ),
            overhead_seconds=Histogram(
                prefix + "overhead_seconds",
                "What of a call's time was neither the server's nor spent waiting for consent or for a free place.",
                buckets=(0.00025, 0.0005, *_BUCKETS[:10]),
                registry=registry,
            ),
            active=Gauge(prefix + "calls_active", "Calls that are under way.", registry=registry),
            connects=Counter(
                prefix + "connects_total",
                "Connections to servers: ok and failed attempts, and those that were lost.",
                ["outcome"],
                registry=registry,
            ),
            connections=Gauge(prefix + "connections", "Sessions with servers that are open.", registry=registry),
            listings=Counter(
                prefix + "listings_total", "Times that a server's tools were listed.", ["outcome"], registry=registry
            ),
            available=Gauge(prefix + "servers_available", "ToolServers that answer.", registry=registry),
            tools=Gauge(prefix + "tools", "Tools of all ToolServers that code may see.", registry=registry),
            redactions=Counter(
                prefix + "credential_redactions_total",
                "Answers in which a server gave its own credentials back, and which were redacted.",
                registry=registry,
            ),
        )

    def ended(self, server: str, outcome: str, seconds: float) -> None:
        """Counts a call that ended; `server` as NAMESPACE/NAME, or empty where there is none."""
        if server not in self._seconds and len(self._seconds) >= _MOST_SERVERS:
            server = "other"
        self.calls.labels(server, outcome).inc()
        found = self._seconds.get(server)
        if found is None:
            found = self._seconds[server] = self.call_seconds.labels(server)
        found.observe(seconds)
