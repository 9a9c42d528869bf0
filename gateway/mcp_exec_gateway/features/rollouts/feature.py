"""Registration of rollouts, with examples of their bodies."""

from typing import Any, Final

from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.core.openapi import Examples, show
from mcp_exec_gateway.features.records.service import Records
from mcp_exec_gateway.features.rollouts.exposures import ExposureLog
from mcp_exec_gateway.features.rollouts.routes import router
from mcp_exec_gateway.features.rollouts.service import RolloutCache, Rollouts, RolloutSteering

_ROLLOUT: Final[dict[str, Any]] = {
    "name": "code-mode",
    "namespace": "agents",
    "phase": "Progressing",
    "control": "direct",
    "paused": False,
    "killSwitch": False,
    "stage": "quarter",
    "since": "2026-11-21T20:00:00.000000Z",
    "exposure": "25 users, 25 %",
    "arms": [{"name": "direct", "mode": "direct", "weight": 1}, {"name": "code", "mode": "code", "weight": 1}],
    "stages": [
        {"name": "team", "users": 25, "percent": 0, "manual": True},
        {"name": "quarter", "users": 0, "percent": 25, "durationSeconds": 86400, "manual": False},
    ],
    "guards": [
        {"name": "errors", "metric": "errorRate", "state": "OK", "arm": "code", "value": 0.02, "samples": 210},
    ],
}
"""A rollout in its second stage."""
_ASSIGNMENT: Final[dict[str, Any]] = {
    "rollout": "code-mode",
    "unit": "conversation-17",
    "arm": "code",
    "mode": "code",
    "enrolled": True,
    "stage": "quarter",
    "phase": "Progressing",
}
_ARM: Final[dict[str, Any]] = {
    "name": "code",
    "exposed": 232,
    "units": 210,
    "outcomes": 240,
    "failures": 5,
    "errorRate": {"value": 0.021, "low": 0.009, "high": 0.048, "samples": 240},
    "tokens": {"value": 5612.4, "low": 5230.1, "high": 5994.7, "samples": 240},
}
_EXAMPLES: Final[Examples] = {
    "NewAssignment": show(one={"unit": "conversation-17", "user": "ann@example.com"}),
    "Assignment": show(enrolled=_ASSIGNMENT),
    "NewPromotion": show(stage={"to": "quarter"}),
    "Rollout": show(progressing=_ROLLOUT),
    "RolloutList": show(one={"items": [_ROLLOUT]}),
    "NewOutcome": show(
        task={"id": "task-17", "unit": "conversation-17", "success": True, "latencyMs": 5400, "tokens": 5840}
    ),
    "RolloutReport": show(
        two={"rollout": "code-mode", "control": "direct", "confidence": 0.95, "arms": [_ARM]},
    ),
}


def build(core: Dependencies) -> None:
    """Build the rollouts. Reports about conversations find the arms of their units."""
    cache, client = RolloutCache(), None if core.broker is None else RecordsClient(core.broker)
    rollouts = Rollouts(
        cache=cache,
        steering=RolloutSteering(kube=core.kube, cache=cache),
        exposures=ExposureLog(client=client, metrics=core.metrics),
        records=client,
    )
    core.add(rollouts)
    core.extensions.caches["rollouts"] = cache
    core.extensions.tasks["exposures"] = rollouts.exposures.run
    if (records := core.find(Records)) is not None:
        records.find_arm = rollouts.find_arm


ROLLOUTS: Final = Feature(build=build, routers=(router,), examples=_EXAMPLES)
