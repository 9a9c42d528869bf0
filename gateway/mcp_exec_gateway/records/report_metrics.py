"""Metrics of what applications report."""

from mcp_exec_api.wire.records import NewUsageReport
from mcp_exec_common.usage.prices import PriceTable
from mcp_exec_gateway.metrics import Metrics


def measure_report(report: NewUsageReport, *, namespace: str, metrics: Metrics, prices: PriceTable) -> None:
    """Count the tokens of a report, and their price if the model has one."""
    use_case = report.use_case.value if report.use_case else ""
    for kind, tokens in (
        ("input", report.input_tokens),
        ("output", report.output_tokens),
        ("cache_read", report.cache_read_tokens),
        ("cache_write", report.cache_write_tokens),
    ):
        metrics.model_tokens.labels(namespace, report.mode, use_case, kind, report.counted).inc(tokens)
    cost = prices.price_tokens(report.model, report)
    if cost is not None:
        metrics.model_cost.labels(namespace, report.mode, use_case, prices.currency).inc(cost)
