"""Metrics of the broker. Labels are bounded: servers by a maximum number, outcomes by an enumeration."""

from collections.abc import Collection
from typing import Final, Literal

from prometheus_client import Histogram

from mcp_exec_common.process.metrics import MetricsBase

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_COUNTS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_MAX_SERVERS: Final = 200
_MAX_COMBINATIONS: Final = 100
MAX_COMBINED: Final = 4
"""Servers of a combination that is counted by their names; larger ones count as `more`."""
_OTHER: Final = "other"

CallMode = Literal["code", "direct"]
"""Who sent a call: code in a sandbox, or an MCP client."""


class Metrics(MetricsBase):
    """All metrics and their registry."""

    def __init__(self) -> None:
        super().__init__("mcp_exec_broker_")
        self.declare_process("broker")
        self.calls = self.counter(
            "calls_total",
            "Ended tool calls by outcome, mode (code, direct) and server: `other` beyond the first 200 servers, empty "
            "if unknown.",
            "server",
            "outcome",
            "mode",
        )
        self.call_failures = self.counter(
            "call_failures_total",
            "Failed tool calls by server and reason; ToolError if the tool reported the failure.",
            "server",
            "reason",
        )
        self.result_bytes = self.counter(
            "result_bytes_total",
            "Bytes of results by server and mode: those of `code` go to a sandbox, those of `direct` to a model.",
            "server",
            "mode",
        )
        self.combinations = self.counter(
            "execution_servers_total",
            "Ended executions by the servers that they called, such as `github+slack`: `more` for more than 4 "
            "servers, `other` beyond the first 100 combinations.",
            "namespace",
            "servers",
        )
        self.execution_calls = self.histogram(
            "execution_calls", "Tool calls of an ended execution that called a server.", buckets=_COUNTS
        )
        self.call_seconds = self.histogram(
            "call_seconds",
            "Time from the arrival of a call to its answer, including the wait for an approval.",
            "server",
            buckets=_BUCKETS,
        )
        self.overhead_seconds = self.histogram(
            "overhead_seconds",
            "Time of a call in the broker itself: without the server, an approval, and the wait for a slot.",
            buckets=(0.00025, 0.0005, *_BUCKETS[:10]),
        )
        self.active = self.gauge("calls_active", "Calls in progress.")
        self.connects = self.counter(
            "connects_total", "Connections to servers by outcome: ok, failed, lost.", "outcome"
        )
        self.connections = self.gauge("connections", "Open sessions with servers.")
        self.listings = self.counter("listings_total", "Listings of the tools of a server.", "outcome")
        self.available = self.gauge("servers_available", "ToolServers that answer.")
        self.tools = self.gauge("tools", "Tools of all ToolServers that code may see.")
        self.redactions = self.counter(
            "credential_redactions_total",
            "Answers that contained credentials of their server, which the broker redacted.",
        )
        self._seconds: dict[str, Histogram] = {}
        self._combinations: set[tuple[str, str]] = set()

    def record_call(
        self, server: str, outcome: str, seconds: float, *, mode: CallMode, result_bytes: int = 0, reason: str = ""
    ) -> None:
        """Record an ended call; `server` is NAMESPACE/NAME, or empty if the server is unknown.

        `reason` is that of a failure, empty if the call succeeded.
        """
        if server not in self._seconds and len(self._seconds) >= _MAX_SERVERS:
            server = _OTHER
        self.calls.labels(server, outcome, mode).inc()
        self.result_bytes.labels(server, mode).inc(result_bytes)
        if reason:
            self.call_failures.labels(server, reason).inc()
        histogram = self._seconds.get(server)
        if histogram is None:
            histogram = self._seconds[server] = self.call_seconds.labels(server)
        histogram.observe(seconds)

    def record_execution(self, namespace: str, servers: Collection[str], *, calls: int) -> None:
        """Record an ended execution by the names of the servers that it called. One without calls counts nothing."""
        if not servers:
            return
        combination = (namespace, "more" if len(servers) > MAX_COMBINED else "+".join(sorted(servers)))
        if combination not in self._combinations:
            if len(self._combinations) < _MAX_COMBINATIONS:
                self._combinations.add(combination)
            else:
                combination = ("", _OTHER)
        self.combinations.labels(*combination).inc()
        self.execution_calls.observe(calls)
