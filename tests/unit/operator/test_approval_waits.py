"""Waits for approvals of one execution, over processes of the broker and of the operator."""

from mcp_exec_api.code_execution import Durations, ToolCalls
from mcp_exec_common.broker.client import ApprovalWait, ExecutionCalls
from mcp_exec_operator.executions.tools import ApprovalWaits, separate_waits


def answer(*waits: tuple[str, float, float], complete: bool = True) -> ExecutionCalls:
    measures = [
        ApprovalWait(process=process, waited_seconds=waited, remaining_seconds=remaining)
        for process, waited, remaining in waits
    ]
    return ExecutionCalls(tool_calls=ToolCalls(complete=complete), waits=measures)


def test_a_replica_that_does_not_answer_still_waits_and_one_that_is_gone_does_not() -> None:
    waits = ApprovalWaits(limit_seconds=600)
    waits.observe(answer(("p1", 10, 50)))
    assert (waits.seconds, waits.extension_seconds) == (10, 60)
    waits.observe(answer(complete=False))
    assert (waits.seconds, waits.extension_seconds) == (10, 60)
    waits.observe(answer())
    assert (waits.seconds, waits.extension_seconds) == (10, 10)
    waits.observe(answer(("p1", 20, 40)))  # it was not ready for a moment
    assert (waits.seconds, waits.extension_seconds) == (20, 60)
    waits.observe(answer(("p2", 5, 30)))
    assert (waits.seconds, waits.extension_seconds) == (25, 55)


def test_no_answer_extends_a_run_beyond_its_own_limit() -> None:
    waits = ApprovalWaits(limit_seconds=30)
    waits.observe(answer(("p1", 20, 600)))
    assert (waits.seconds, waits.extension_seconds) == (20, 30)
    waits.observe(answer(*((f"p{number}", 1000, 1000) for number in range(2, 60))))
    assert (waits.seconds, waits.extension_seconds) == (30, 30)


def test_what_an_earlier_operator_recorded_is_not_lost_and_not_counted_twice() -> None:
    waits = ApprovalWaits(limit_seconds=600, recorded_seconds=40)
    assert (waits.seconds, waits.extension_seconds) == (40, 40)
    waits.observe(answer(("p1", 45, 5)))
    assert (waits.seconds, waits.extension_seconds) == (45, 50)


def test_the_duration_of_a_run_has_no_waits() -> None:
    assert separate_waits(Durations(run=5000), 3.5) == Durations(run=1500, approval=3500)
    assert separate_waits(Durations(run=2000), 3.5) == Durations(run=0, approval=3500)
    assert separate_waits(Durations(run=2000), 0) == Durations(run=2000)
    assert separate_waits(Durations(), 1) == Durations(approval=1000)
