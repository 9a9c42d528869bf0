"""Comparison of what an execution costs with the release before."""

from typing import Any

import pytest
from pace import PARTS, compare, list_worse, summarize


def build_round(*, operator: float = 4, writes: float = 6, p99: float = 100) -> dict[str, Any]:
    spent = {**dict.fromkeys(PARTS, 2.0), "operator": operator, "load generator": 50.0, "all": 60.0}
    return {"processor ms": spent, "writes": {"operator": writes - 1, "gateway": 1.0}, "p99": p99}


def test_the_medians_of_the_rounds_are_compared() -> None:
    rounds = [build_round(operator=each) for each in (4, 90, 5)]
    assert summarize(rounds) == {
        "operator, processor ms": 5, "gateway, processor ms": 2, "kube-apiserver, processor ms": 2,
        "etcd, processor ms": 2, "processor ms": 11, "writes": 6, "p99 ms": 100,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("now", "worse"),
    [
        (build_round(operator=4.9), []),
        (build_round(operator=5.1), ["processor ms of an execution: 11.1 instead of 10.0"]),
        (build_round(writes=6.7), ["writes of an execution: 6.7 instead of 6.0"]),
        (build_round(operator=1, writes=3, p99=900), []),
    ],
    ids=["within a tenth", "processor time", "writes", "cheaper"],
)
def test_a_tenth_more_processor_time_or_writes_is_worse(now: dict[str, Any], worse: list[str]) -> None:
    assert list_worse(compare(summarize([build_round()]), summarize([now])), worse=1.1) == worse
