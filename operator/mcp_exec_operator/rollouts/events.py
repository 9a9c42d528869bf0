"""Events about rollouts: what a new status means, for `kubectl describe`. Pure."""

from datetime import datetime
from typing import Final

from mcp_exec_api.constants import API_VERSION
from mcp_exec_api.meta import micro_time
from mcp_exec_api.rollouts.status import ExecutionRolloutStatus, RolloutPhase
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.text import shorten
from mcp_exec_operator.rollouts.record import RolloutRecord

_MAX_MESSAGE: Final = 1000
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
    (namespace, name), at = record.key, micro_time(moment)[:19] + "Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": "ExecutionRollout",
            "namespace": namespace,
            "name": name,
            "uid": record.uid,
        },
        "type": kind,
        "reason": reason,
        "message": shorten(message, _MAX_MESSAGE),
        "source": {"component": "mcp-exec-operator"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
