"""Estimated tokens of an execution, and what code saved or lost with it."""

from typing import Any

import pytest

from mcp_exec_api.code_execution import ExecutionError, Phase, TokenUsage, Usage
from mcp_exec_operator.core.executions.outcome import ExecutionOutcome, with_tokens
from mcp_exec_operator.metrics import Metrics
from mcp_exec_tools.text import estimate_tokens


def read_tokens(**fields: Any) -> TokenUsage:
    outcome = ExecutionOutcome(phase=Phase.SUCCEEDED, usage=Usage(code_bytes=8), **fields)
    usage = with_tokens(outcome, code_tokens=3).usage
    assert usage is not None
    assert usage.tokens is not None
    return usage.tokens


def test_what_a_model_reads_is_all_that_leaves_the_sandbox() -> None:
    error = ExecutionError(type="ValueError", message="no rows", traceback="line 1")
    output = {"stdout": "forty-two rows\n", "stderr": "warning", "result": {"n": 42}}
    expected = ["forty-two rows\n", "warning", "ValueError", "no rows", "line 1", '{"n": 42}']
    assert read_tokens(output=output, error=error).returned == sum(map(estimate_tokens, expected))


def test_what_stayed_in_the_sandbox_is_estimated_by_its_bytes() -> None:
    tokens = read_tokens(tool_calls={"total": 1, "bytesKept": 4000})
    assert (tokens.code, tokens.kept, tokens.method) == (3, 1000, "estimate-o200k-1; kept: 4 bytes")
    assert read_tokens(tool_calls={"total": 1}).kept == 0


def test_an_execution_without_tools_keeps_an_unknown_number() -> None:
    assert read_tokens().kept is None


def test_an_execution_without_a_sandbox_has_no_tokens() -> None:
    outcome = ExecutionOutcome(phase=Phase.CANCELLED)
    assert with_tokens(outcome, code_tokens=3) is outcome


@pytest.mark.parametrize(("kept", "calls", "saving"), [(1000, 2, 960), (10, 1, -30), (0, 1, -40), (1000, 0, 0)])
def test_code_saves_what_it_kept_less_what_it_took_to_write(kept: int, calls: int, saving: int) -> None:
    tool_calls = {"total": calls, "bytesKept": 4 * kept}
    outcome = ExecutionOutcome(phase=Phase.SUCCEEDED, usage=Usage(code_bytes=8), tool_calls=tool_calls)
    assert with_tokens(outcome, code_tokens=40).saving == saving


def test_code_without_tools_saves_nothing() -> None:
    outcome = ExecutionOutcome(phase=Phase.SUCCEEDED, usage=Usage(code_bytes=8))
    assert with_tokens(outcome, code_tokens=40).saving == 0


def test_savings_and_losses_are_counted_apart() -> None:
    metrics = Metrics()
    for saving in (960, -30, -5):
        usage = Usage(tokens=TokenUsage(code=0, kept=10, method="m"))
        metrics.observe_usage(usage, namespace="agents", pool="default", use_case="filtering", saving=saving)
    labels = {"namespace": "agents", "use_case": "filtering"}
    found = [
        metrics.registry.get_sample_value(f"mcp_exec_tokens_{name}_total", labels)
        for name in ("kept", "saved_estimate", "lost_estimate")
    ]
    assert found == [30.0, 960.0, 35.0]
