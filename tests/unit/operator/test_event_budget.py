"""Events about executions come at a bounded rate, by namespace."""

from mcp_exec_operator.cluster.kube.api import EventBudget


def test_a_namespace_has_a_burst_and_then_a_rate_and_takes_from_no_other() -> None:
    moment = 0.0
    budget = EventBudget(clock=lambda: moment)
    assert sum(budget.take("agents") for _ in range(100)) == 20
    assert budget.take("others")
    moment = 2.0
    assert [budget.take("agents") for _ in range(2)] == [True, False]
    moment = 1000.0
    assert sum(budget.take("agents") for _ in range(100)) == 20


def test_of_namespaces_without_end_the_first_are_forgotten() -> None:
    budget = EventBudget(clock=lambda: 0.0)
    assert sum(budget.take("n0") for _ in range(100)) == 20
    for number in range(1, 1002):
        assert budget.take(f"n{number}")
    assert budget.take("n0")
