"""The status of an execution at each of its steps. Pure functions: JSON data in, JSON data out."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from mcp_exec_api.code_execution import Durations, ExecutionError, Phase, QueuePlace, Reason, Start, format_duration
from mcp_exec_api.constants import ANNOTATION_CREATED
from mcp_exec_api.meta import Condition, ConditionStatus, micro_time, set_condition
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.executions.output import shorten

MAX_STATUS_BYTES: Final = 900 * 1024
"""The most that a status may have as the API server stores it."""
MAX_OBJECT_BYTES: Final = 1_400_000
"""The most that the whole object may have: etcd takes 1.5 MiB."""
_MAX_MESSAGE: Final = 2048
_CLOCK_SKEW: Final = timedelta(seconds=5)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an execution ended."""

    phase: Phase
    reason: Reason = Reason.NONE
    message: str = ""
    error: ExecutionError | None = None
    output: Object | None = None
    started_at: datetime | None = None
    durations: Durations = field(default_factory=Durations)
    """Those that are known, without the total."""
    tool_calls: Object | None = None
    """What was called; None where it may call nothing."""
    code_findings: list[Object] | None = None
    """What stood out in the code; None where that is as the status says already."""
    approvals: list[Object] | None = None
    """What needed consent; None where that is as the status says already."""


def failed(reason: Reason, message: str) -> Outcome:
    """The end of an execution that never ran, or of which nothing is known."""
    return Outcome(
        phase=Phase.FAILED, reason=reason, message=message, error=ExecutionError(type=reason.value, message=message)
    )


def cancelled(message: str = "cancelled before it ran") -> Outcome:
    """The end of an execution that nobody wants any more."""
    return Outcome(phase=Phase.CANCELLED, reason=Reason.CANCELLED, message=message)


def pending_status(
    status: Object, *, reason: Reason, message: str, place: QueuePlace, moment: datetime, created: datetime
) -> Object:
    """Still without a pod, why, and where it stands among those that wait."""
    text = f"{shorten(message, _MAX_MESSAGE - 128)}; {place}"
    return _merged(
        status,
        phase=Phase.PENDING,
        reason=reason,
        queue=place.to_api(),
        createdAt=micro_time(created),
        conditions=_with(status, "Bound", ConditionStatus.FALSE, reason, text, moment),
    )


def bound_status(
    status: Object,
    *,
    pod: str,
    node: str | None,
    start: Start,
    ready_seconds: float,
    digest: str,
    variant: str = "",
    code_findings: list[Object] | None = None,
    moment: datetime,
    created: datetime,
) -> Object:
    """Bound to a pod: written before any code runs."""
    message = f"pod {pod} was ready for {ready_seconds:.0f} s" if start is Start.WARM else f"pod {pod} was made for it"
    return _merged(
        status,
        phase=Phase.RUNNING,
        reason=Reason.NONE,
        queue=None,
        podName=pod,
        variant=variant,
        nodeName=node,
        start=start,
        specDigest=digest,
        codeFindings=code_findings or None,
        createdAt=micro_time(created),
        boundAt=micro_time(moment),
        durations=Durations(queued=_milliseconds(moment - created)).to_api(),
        conditions=_with(status, "Bound", ConditionStatus.TRUE, f"{start}Pod", message, moment),
    )


def finished_status(
    status: Object, outcome: Outcome, *, moment: datetime, created: datetime, spare_bytes: int = MAX_STATUS_BYTES
) -> Object:
    """Ended. The output is cut until the status has no more than `spare_bytes`."""
    total = _milliseconds(moment - created)
    durations = {**(status.get("durations") or {}), **outcome.durations.to_api(), "total": total}
    finished = outcome.reason or outcome.phase
    output = lean(fit_output(outcome.output, spare_bytes)) if outcome.output is not None else None
    return _merged(
        status,
        phase=outcome.phase,
        reason=outcome.reason,
        queue=None,
        createdAt=micro_time(created),
        startedAt=micro_time(outcome.started_at) if outcome.started_at else None,
        finishedAt=micro_time(moment),
        duration=format_duration(total),
        durations=durations,
        output=output,
        error=lean(outcome.error.to_api()) if outcome.error else None,
        toolCalls=outcome.tool_calls,
        codeFindings=(status.get("codeFindings") if outcome.code_findings is None else outcome.code_findings) or None,
        approvals=(status.get("approvals") if outcome.approvals is None else outcome.approvals) or None,
        conditions=_with(status, "Finished", ConditionStatus.TRUE, finished, outcome.message, moment),
    )


def approvals_status(status: Object, approvals: list[Object]) -> Object:
    """It runs, and these of its calls need or needed somebody's consent."""
    return _merged(status, approvals=approvals or None)


def changed_status(status: Object, *, fields: list[str], moment: datetime) -> Object:
    """Somebody changed what can't be changed, on a cluster that did not refuse it."""
    names = " and ".join(f"spec.{name}" for name in fields) or "the spec"
    message = f"{names} changed after creation; what ran, or runs, is the spec as it was"
    return _merged(
        status, conditions=_with(status, "SpecUnchanged", ConditionStatus.FALSE, "Immutable", message, moment)
    )


def created_at(body: Object, *, first_seen: datetime) -> datetime:
    """When an execution was created, with microseconds where somebody knows them.

    The gateway writes them in an annotation; it is believed where it agrees with the API server's whole seconds.
    """
    if recorded := (body.get("status") or {}).get("createdAt"):
        return datetime.fromisoformat(recorded)
    meta = body["metadata"]
    coarse = datetime.fromisoformat(meta["creationTimestamp"])
    try:
        noted = datetime.fromisoformat((meta.get("annotations") or {})[ANNOTATION_CREATED])
        if abs(noted - coarse) < _CLOCK_SKEW:
            return noted
    except (KeyError, ValueError, TypeError):
        pass
    return first_seen if timedelta() <= first_seen - coarse < timedelta(seconds=2) else coarse


def spare_bytes(body: Object) -> int:
    """Bytes that a status may have beside the rest of its object."""
    rest = {name: value for name, value in body.items() if name != "status"}
    return max(16 * 1024, min(MAX_STATUS_BYTES, MAX_OBJECT_BYTES - stored_bytes(rest)))


def stored_bytes(value: Any) -> int:
    """An upper bound of a value's size as JSON, both as Python and as the API server write it."""
    text = json.dumps(value)
    return len(text) + 5 * sum(text.count(mark) for mark in "<>&")


def fit_output(output: Object, limit: int) -> Object:
    """The output with its largest parts cut in the middle until all of it has no more than `limit` bytes."""
    parts = ("stdout", "stderr", "result")
    if sum(len(output[name]) for name in ("stdout", "stderr")) * 6 + _quick_size(output.get("result")) <= limit:
        return output
    fitted = dict(output)
    sizes = {name: stored_bytes(fitted.get(name)) for name in parts}
    while sum(sizes.values()) > limit:
        largest = max(parts, key=lambda name: sizes[name])
        text = fitted[largest] if isinstance(fitted[largest], str) else json.dumps(fitted[largest])
        fitted[largest] = shorten(text, max(len(text) // 2 - 64, 0))
        fitted["truncated"] = True
        sizes[largest] = stored_bytes(fitted[largest])
    return fitted


def lean(part: Object) -> Object:
    """A part of a status without fields that say nothing.

    API servers built by Go 1.22 and later with Kubernetes' validation of before 1.24 take an empty text for null, and
    refuse it.
    """
    return {name: value for name, value in part.items() if value is not None and value != ""}


def _quick_size(result: object) -> int:
    if result is None or isinstance(result, bool | int | float):
        return 32
    return len(result) * 6 if isinstance(result, str) else stored_bytes(result)


def _with(
    status: Object, kind: str, holds: ConditionStatus, reason: str, message: str, moment: datetime
) -> list[Object]:
    known = [Condition.model_validate(condition) for condition in status.get("conditions") or ()]
    new = Condition(
        type=kind, status=holds, reason=reason, message=shorten(message, _MAX_MESSAGE), last_transition_time=moment
    )
    return [lean(condition.to_api()) for condition in set_condition(known, new)]


def _merged(status: Object, **fields: Any) -> Object:
    return lean({**status, **fields})


def _milliseconds(span: timedelta) -> float:
    return round(max(0.0, span.total_seconds() * 1000), 3)
