"""How rollouts are shown in tables."""

from collections.abc import Sequence
from typing import Final

from mcp_exec_client.cli.options import Object
from mcp_exec_client.cli.output import TableColumn, age


def worst_guard(guards: Sequence[Object] | None) -> str | None:
    """Return the worst that the guards found, as `kubectl get xro` shows it; None without guards."""
    for state in ("Violated", "Unknown"):
        for guard in guards or ():
            if guard.get("state") == state:
                return f"{guard.get('metric')} {state}"
    return "OK" if guards else None


ROLLOUTS: Final = (
    TableColumn(title="NAME", cell=lambda item: item["name"]),
    TableColumn(title="PHASE", cell=lambda item: item.get("phase")),
    TableColumn(title="STAGE", cell=lambda item: item.get("stage")),
    TableColumn(title="ARMS", cell=lambda item: ", ".join(arm["name"] for arm in item.get("arms") or ())),
    TableColumn(title="EXPOSURE", cell=lambda item: item.get("exposure")),
    TableColumn(title="GUARD", cell=lambda item: worst_guard(item.get("guards"))),
    TableColumn(title="CONTROL", cell=lambda item: item.get("control"), wide=True),
    TableColumn(title="MESSAGE", cell=lambda item: item.get("problem") or item.get("message"), wide=True),
    TableColumn(title="SINCE", cell=lambda item: age(item.get("since"))),
)
ROLLOUT_STAGES: Final = (
    TableColumn(title="STAGE", cell=lambda item: item["name"]),
    TableColumn(title="PRESENT", cell=lambda item: "yes" if item.get("present") else None),
    TableColumn(title="USERS", cell=lambda item: item.get("users") or None),
    TableColumn(title="PERCENT", cell=lambda item: item.get("percent") or 0),
    TableColumn(title="SECONDS", cell=lambda item: item.get("durationSeconds") or "until promoted"),
)
ROLLOUT_ARMS: Final = (
    TableColumn(title="ARM", cell=lambda item: item["name"]),
    TableColumn(title="MODE", cell=lambda item: item.get("mode")),
    TableColumn(title="POOL", cell=lambda item: item.get("pool")),
    TableColumn(title="UNITS", cell=lambda item: item["measured"].get("exposed")),
    TableColumn(title="OUTCOMES", cell=lambda item: item["measured"].get("outcomes")),
    TableColumn(title="ERROR RATE", cell=lambda item: item["measured"].get("errorRate")),
    TableColumn(title="P95 MS", cell=lambda item: item["measured"].get("p95LatencyMs")),
    TableColumn(title="COST", cell=lambda item: item["measured"].get("costPerConversation")),
    TableColumn(title="RATING", cell=lambda item: item["measured"].get("rating")),
)
ROLLOUT_GUARDS: Final = (
    TableColumn(title="GUARD", cell=lambda item: item["name"]),
    TableColumn(title="METRIC", cell=lambda item: item.get("metric")),
    TableColumn(title="STATE", cell=lambda item: item.get("state")),
    TableColumn(title="ARM", cell=lambda item: item.get("arm")),
    TableColumn(title="VALUE", cell=lambda item: item.get("value")),
    TableColumn(title="LIMIT", cell=lambda item: item.get("limit")),
    TableColumn(title="SAMPLES", cell=lambda item: item.get("samples")),
)


def _interval(arm: Object, name: str, *, scale: float = 1.0) -> str | None:
    """Return a value with the ends of its interval, for people; an end that nothing is known of is `?`."""
    measured = arm.get(name)
    if measured is None:
        return None
    low, high = ("?" if measured.get(end) is None else f"{measured[end] * scale:.4g}" for end in ("low", "high"))
    return f"{measured['value'] * scale:.4g} ({low} to {high})"


ARM_REPORT: Final = (
    TableColumn(title="ARM", cell=lambda arm: arm["name"]),
    TableColumn(title="EXPOSED", cell=lambda arm: arm.get("exposed") or 0),
    TableColumn(title="UNITS", cell=lambda arm: arm.get("units") or 0),
    TableColumn(title="OUTCOMES", cell=lambda arm: arm.get("outcomes") or 0),
    TableColumn(title="FAILED %", cell=lambda arm: _interval(arm, "errorRate", scale=100)),
    TableColumn(title="P95 MS", cell=lambda arm: _interval(arm, "p95LatencyMs")),
    TableColumn(title="TOKENS", cell=lambda arm: _interval(arm, "tokens")),
    TableColumn(title="COST", cell=lambda arm: _interval(arm, "cost")),
    TableColumn(title="RATING", cell=lambda arm: _interval(arm, "rating")),
)
