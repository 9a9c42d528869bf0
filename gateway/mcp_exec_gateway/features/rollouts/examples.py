"""Examples of rollouts in the OpenAPI document."""

from typing import Any, Final

from mcp_exec_gateway.core.openapi import Examples, show

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
EXAMPLES: Final[Examples] = {
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
