"""Events about rollouts: what a new status means, for `kubectl describe`. Pure."""

from datetime import datetime
from typing import Final

from mcp_exec_api.rollout_status import ExecutionRolloutStatus, RolloutPhase
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.kube.events import build_event
from mcp_exec_operator.rollouts.record import RolloutRecord

_WARNINGS: Final = (RolloutPhase.ROLLED_BACK, RolloutPhase.ABORTED)


def build_events(
    record: RolloutRecord, before: ExecutionRolloutStatus, after: ExecutionRolloutStatus, *, moment: datetime
) -> list[Object]:
    """Return the Events of a change of status: each new stage, and each new phase other than that of a new stage."""
    events = []
    if after.stage is not None and (after.stage, after.since) != (before.stage, before.since):
        message = f"stage {after.stage} began: {after.exposure}"
        events.append(_build(record, "StageBegan", message, moment=moment))
    elif after.phase is not before.phase and after.phase is RolloutPhase.PROGRESSING:
        events.append(_build(record, "Resumed", after.message, moment=moment))
    if after.phase is not before.phase and after.phase is not RolloutPhase.PROGRESSING:
        kind = "Warning" if after.phase in _WARNINGS else "Normal"
        events.append(_build(record, str(after.phase), after.message, kind=kind, moment=moment))
    return events


def _build(record: RolloutRecord, reason: str, message: str, *, moment: datetime, kind: str = "Normal") -> Object:
    return build_event(
        "ExecutionRollout", key=record.key, uid=record.uid, kind=kind, reason=reason, message=message, moment=moment
    )
