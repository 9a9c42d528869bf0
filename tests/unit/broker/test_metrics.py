"""Metrics of calls: their labels are bounded."""

from prometheus_client import generate_latest

from mcp_exec_broker.metrics import MAX_COMBINED, Metrics


def text(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_an_execution_counts_the_servers_that_it_called_together() -> None:
    metrics = Metrics()
    metrics.record_execution("agents", {"slack", "github"}, calls=4)
    metrics.record_execution("agents", {"github", "slack"}, calls=6)
    metrics.record_execution("agents", set(), calls=0)
    assert 'execution_servers_total{namespace="agents",servers="github+slack"} 2.0' in text(metrics)
    assert "mcp_exec_broker_execution_calls_sum 10.0" in text(metrics)


def test_large_and_many_combinations_share_a_series() -> None:
    metrics = Metrics()
    metrics.record_execution("agents", {f"s{n}" for n in range(MAX_COMBINED + 1)}, calls=9)
    for number in range(500):
        metrics.record_execution("agents", {f"s{number}"}, calls=1)
    lines = [line for line in text(metrics).splitlines() if line.startswith("mcp_exec_broker_execution_servers_total{")]
    assert len(lines) == 101
    assert 'mcp_exec_broker_execution_servers_total{namespace="agents",servers="more"} 1.0' in lines
    assert 'mcp_exec_broker_execution_servers_total{namespace="",servers="other"} 401.0' in lines


def test_a_failed_call_counts_by_its_reason_and_a_success_by_none() -> None:
    metrics = Metrics()
    metrics.record_call("agents/box", "denied", 0.1, mode="code", reason="BudgetExceeded")
    metrics.record_call("agents/box", "ok", 0.1, mode="direct", result_bytes=120)
    lines = text(metrics)
    assert 'mcp_exec_broker_call_failures_total{reason="BudgetExceeded",server="agents/box"} 1.0' in lines
    assert lines.count("mcp_exec_broker_call_failures_total{") == 1
    assert 'mcp_exec_broker_result_bytes_total{mode="direct",server="agents/box"} 120.0' in lines
    assert 'mcp_exec_broker_calls_total{mode="direct",outcome="ok",server="agents/box"} 1.0' in lines
