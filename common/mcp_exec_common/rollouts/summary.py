"""Summary of a rollout for people: who is enrolled, and the worst that its guards found. Pure."""

from collections.abc import Sequence
from typing import Final

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import ExecutionRolloutStatus, GuardResult, GuardState, RolloutPhase

_CONTROL_ONLY: Final = frozenset({RolloutPhase.PENDING, RolloutPhase.ROLLED_BACK, RolloutPhase.ABORTED})


def describe_exposure(spec: ExecutionRolloutSpec, status: ExecutionRolloutStatus) -> str:
    """Return who is enrolled, for people: `25 users, 10 %`."""
    present = spec.find_stage(status.stage)
    if status.phase in _CONTROL_ONLY or present is None:
        return "0 %"
    if status.phase is RolloutPhase.COMPLETED and spec.complete_with is not None:
        return f"all: {spec.complete_with}"
    begun = spec.stages[: present + 1]
    users = len({user for stage in begun for user in stage.users})
    share = f"{max(stage.percent for stage in begun)} %"
    return f"{users} user{'' if users == 1 else 's'}, {share}" if users else share


def describe_guards(results: Sequence[GuardResult]) -> str | None:
    """Return the worst result, for people: `OK` or `errorRate Violated`. None without guards."""
    for state in (GuardState.VIOLATED, GuardState.UNKNOWN):
        for result in results:
            if result.state is state:
                return f"{result.metric} {state}"
    return "OK" if results else None
