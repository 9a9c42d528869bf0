"""Measures of rollouts, as the operator reads them from the records, and what guards conclude."""

import math

import pytest

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import GuardMetric
from mcp_exec_api.wire.rollouts import MeasuredArm, MeasuredInterval, MeasuredRollout
from mcp_exec_common.broker.records import RecordsError
from mcp_exec_common.rollouts.guards import share_interval
from mcp_exec_operator.features.rollouts.measures import RecordsReader, RecordsUnreadable, RolloutIdentity

SPEC = ExecutionRolloutSpec.model_validate(
    {
        "arms": [{"name": "direct", "mode": "direct"}, {"name": "code", "mode": "code"}],
        "control": "direct",
        "stages": [{"name": "all", "percent": 100, "manual": True}],
        "guards": [
            {"name": "errors", "metric": "errorRate", "threshold": 0.1, "windowSeconds": 60},
            {"name": "slow", "metric": "p95LatencyMs", "threshold": 10, "windowSeconds": 600},
        ],
    }
)
ROLLOUT = RolloutIdentity(namespace="agents", name="code-mode", uid="r-1")


class Records:
    """Records that measured 15 failures of 30 outcomes in each window."""

    def __init__(self) -> None:
        self.windows: list[float | None] = []
        self.broken = False

    async def measure_rollout(
        self, *, namespace: str, uid: str, window_seconds: float | None = None
    ) -> MeasuredRollout:
        if self.broken:
            raise RecordsError("no broker replica is ready")
        assert (namespace, uid) == ("agents", "r-1")
        self.windows.append(window_seconds)
        share = share_interval(15, 30)
        assert share is not None
        rate = share.to_measured()
        slow = MeasuredInterval(value=5, low=None, high=None, samples=30)
        arm = MeasuredArm(name="code", units=9, outcomes=30, failures=15, error_rate=rate, p95_latency_ms=slow)
        gone = MeasuredArm(name="gone", outcomes=1)
        return MeasuredRollout.model_validate_json(MeasuredRollout(arms=[arm, gone]).model_dump_json(by_alias=True))


async def test_each_window_is_read_once_and_the_whole_rollout_too() -> None:
    records = Records()
    measures = await RecordsReader(records=records).read(ROLLOUT, SPEC)
    assert sorted(records.windows, key=str) == [60, 600, None]
    assert [(arm.name, arm.outcomes, arm.failures, arm.exposed) for arm in measures.arms] == [("code", 30, 15, 9)]
    latency = measures.guards["slow"]["code"][GuardMetric.P95_LATENCY_MS]
    assert (latency.low, latency.high) == (-math.inf, math.inf)


async def test_records_that_cannot_be_read_are_a_problem_with_a_reason() -> None:
    records = Records()
    records.broken = True
    with pytest.raises(RecordsUnreadable, match="no broker replica is ready"):
        await RecordsReader(records=records).read(ROLLOUT, SPEC)
