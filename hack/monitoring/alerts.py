"""Alerts. Each has a section in docs/platform/runbooks.md, and series in the tests that make it fire."""

from typing import Final

from hack.monitoring.recordings import BURN_WINDOWS, FAILURES, TARGET_FAILURES, TARGET_SECONDS
from hack.monitoring.rules import Alert

_POOL: Final = "{{ $labels.namespace }}/{{ $labels.pool }}"
_LEADER: Final = "mcp_exec_leader"
_GATEWAY: Final = "mcp_exec_gateway_waiters"
_BROKER: Final = "mcp_exec_broker_calls_active"
_FINISHED: Final = "sum by (release, namespace, pool) (increase(mcp_exec_executions_total[5m]))"
_LATENCY: Final = "mcp_exec:execution_stage_seconds:p95_rate5m"


def _vanished(metric: str) -> str:
    """Return a query for the releases that had a metric within the last day and do not have it now."""
    return f"(count by (release) (count_over_time({metric}[1d])) unless on (release) count by (release) ({metric}))"


def _burns(long: str, short: str, factor: float) -> str:
    """Return a query for the releases whose failures exceed a multiple of the target in both windows."""
    parts = (f"{FAILURES}{window} > on (release) {factor:g} * {TARGET_FAILURES}" for window in (long, short))
    return f"({' and on (release) '.join(parts)})"


ALERTS: Final = (
    Alert(
        name="McpExecNoLeader",
        expr=f"sum by (release) ({_LEADER}) < 1 or absent({_LEADER}) or {_vanished(_LEADER)}",
        minutes=2,
        severity="critical",
        summary="No operator leads, so no execution starts.",
    ),
    Alert(
        name="McpExecGatewayAbsent",
        expr=f"absent({_GATEWAY}) or {_vanished(_GATEWAY)}",
        minutes=2,
        severity="critical",
        summary="No gateway is scraped, so callers of the HTTP API are not served.",
    ),
    Alert(
        name="McpExecBrokerAbsent",
        # an installation without a broker never had this series
        expr=_vanished(_BROKER),
        minutes=2,
        severity="critical",
        summary="No broker is scraped, so executions with tools fail.",
    ),
    Alert(
        name="McpExecNamespacesRefused",
        expr="max by (release) (mcp_exec_namespaces_refused) > 0",
        # a new release waits for the claim of the one before
        minutes=10,
        severity="warning",
        summary="{{ $value }} namespaces of the release are not served, so nothing runs in them.",
    ),
    Alert(
        name="McpExecPlatformFaults",
        expr=f"mcp_exec:execution_faults:ratio_rate5m > 0.05 and on (release, namespace, pool) {_FINISHED} > 5",
        minutes=5,
        severity="critical",
        summary=f"{{{{ $value | humanizePercentage }}}} of the executions of pool {_POOL} fail by the platform.",
    ),
    Alert(
        name="McpExecExecutionsWait",
        expr=f'{_LATENCY}{{stage="queued"}} > 5',
        minutes=10,
        severity="warning",
        summary=f"5 % of the executions wait for a pod of pool {_POOL} for {{{{ $value | humanizeDuration }}}}.",
    ),
    Alert(
        name="McpExecQueueGrows",
        expr="max by (release, namespace, pool) (mcp_exec_pool_queued) > 10",
        minutes=5,
        severity="warning",
        summary=f"{{{{ $value }}}} executions wait for a pod of pool {_POOL}.",
    ),
    Alert(
        name="McpExecFewWarmHits",
        expr=f"mcp_exec:warm_starts:ratio_rate5m < 0.8 and on (release, namespace, pool) {_FINISHED} > 20",
        minutes=15,
        severity="warning",
        summary=f"Only {{{{ $value | humanizePercentage }}}} of the executions of pool {_POOL} find a warm pod.",
    ),
    Alert(
        name="McpExecPodsFail",
        expr="sum by (release, namespace, pool, reason) (increase(mcp_exec_pod_failures_total[10m])) > 5",
        minutes=5,
        severity="warning",
        summary=f"Pods of pool {_POOL} fail: {{{{ $labels.reason }}}}.",
    ),
    Alert(
        name="McpExecGatewayErrors",
        expr="mcp_exec:gateway_errors:ratio_rate5m > 0.05",
        minutes=5,
        severity="critical",
        summary="The gateway answers {{ $value | humanizePercentage }} of the requests with a status of 500 or more.",
    ),
    Alert(
        name="McpExecResyncsFail",
        expr="sum by (release) (increase(mcp_exec_resync_failures_total[10m])) > 3",
        minutes=5,
        severity="warning",
        summary="The operator cannot list objects: {{ $value }} resyncs failed in 10 minutes.",
    ),
    Alert(
        name="McpExecEventsDropped",
        expr="sum by (release, reason) (increase(mcp_exec_events_dropped_total[10m])) > 0",
        minutes=5,
        severity="warning",
        summary="The operator drops Events about executions: {{ $labels.reason }}.",
    ),
    Alert(
        name="McpExecToolCallsFail",
        expr="mcp_exec:tool_call_failures:ratio_rate5m > 0.2"
        " and on (release, server) sum by (release, server) (increase(mcp_exec_broker_calls_total[5m])) > 10",
        minutes=10,
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the calls of server {{ $labels.server }} fail.",
    ),
    Alert(
        name="McpExecServersUnreachable",
        expr='sum by (release) (increase(mcp_exec_broker_connects_total{outcome=~"failed|lost"}[10m])) > 20',
        minutes=10,
        severity="warning",
        summary="The broker cannot connect to MCP servers: {{ $value }} attempts failed in 10 minutes.",
    ),
    Alert(
        name="McpExecApprovalsWait",
        expr="sum by (release) (mcp_exec_broker_approvals_pending) > 0",
        minutes=5,
        severity="warning",
        summary="{{ $value }} tool calls have waited for an approval for minutes; they fail after their limit.",
    ),
    Alert(
        name="McpExecFilesNotCollected",
        expr='sum by (release) (increase(mcp_exec_broker_files_collections_total{outcome="failed"}[1h])) > 2',
        minutes=5,
        severity="warning",
        summary="The broker cannot remove files that are no longer needed, so storage grows.",
    ),
    Alert(
        name="McpExecRecordsPending",
        expr="min_over_time(sum by (release) (mcp_exec_records_pending)[10m:1m]) > 0",
        minutes=5,
        severity="warning",
        summary="{{ $value }} finished executions have no record yet, and are kept in the cluster until they do.",
    ),
    Alert(
        name="McpExecRolloutRolledBack",
        expr='max by (release, namespace, rollout) (mcp_exec_rollout_phase{phase="RolledBack"}) == 1'
        ' unless max by (release, namespace, rollout) (mcp_exec_rollout_phase{phase="RolledBack"} offset 1d) == 1',
        minutes=1,
        severity="warning",
        summary="Rollout {{ $labels.rollout }} in {{ $labels.namespace }} was rolled back by its guards today.",
    ),
    Alert(
        name="McpExecSlowerThanTarget",
        expr=f'{_LATENCY}{{stage="total"}} > on (release) group_left () {TARGET_SECONDS}',
        minutes=15,
        severity="warning",
        summary=f"5 % of the executions of pool {_POOL} take {{{{ $value | humanizeDuration }}}}: over target.",
    ),
    Alert(
        name="McpExecFailuresAboveTarget",
        expr=f"{FAILURES}5m > on (release) {TARGET_FAILURES}"
        " and on (release) sum by (release) (increase(mcp_exec_executions_total[5m])) > 20",
        minutes=15,
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the executions fail, more than the target.",
    ),
    Alert(
        name="McpExecErrorBudgetBurns",
        expr=" or ".join(_burns(*windows) for windows in BURN_WINDOWS),
        minutes=2,
        severity="critical",
        summary="{{ $value | humanizePercentage }} of the executions fail, so a month's share is used up within days.",
    ),
    Alert(
        name="McpExecMemoryNearLimit",
        expr="max by (release, component) (process_resident_memory_bytes"
        " / on (release, job, instance) group_right () mcp_exec_memory_limit_bytes) > 0.85",
        minutes=10,
        severity="warning",
        summary="A pod of the {{ $labels.component }} uses {{ $value | humanizePercentage }} of its memory's limit.",
    ),
)
