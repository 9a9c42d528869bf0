"""The status of an execution: pure builders from JSON data to JSON data."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from mcp_exec_api.approvals import ApprovalState
from mcp_exec_api.code_execution import Durations, Phase, QueuePlace, Start, format_duration
from mcp_exec_api.code_findings import Note, NoteKind, add_note
from mcp_exec_api.meta import Condition, ConditionStatus, micro_time, set_condition
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_operator.core.executions.facts import measure_stored_bytes
from mcp_exec_operator.core.executions.outcome import ExecutionOutcome
from mcp_exec_tools.text import shorten

MAX_STATUS_BYTES: Final = 900 * 1024
"""The largest status, in bytes as the API server stores it."""
MAX_OBJECT_BYTES: Final = 1_400_000
"""The largest object, in bytes: etcd takes 1.5 MiB."""
SMALL_STATUS_BYTES: Final = 64 * 1024
"""Size of the output after a cut, if the API server rejects a larger status."""
_LEAST_OUTPUT_BYTES: Final = 16 * 1024
"""Size of the output after a cut, whatever the rest of its object takes."""
_OUTPUT_PARTS: Final = ("stdout", "stderr", "result")
_MAX_MESSAGE: Final = 2048
_CUT_TO_FIT: Final = Note(
    kind=NoteKind.OUTPUT_CUT,
    message="The output was cut further, because an object of the API server has at most 1.5 MiB.",
)


def build_pending_status(
    status: Object, *, reason: Reason, message: str, place: QueuePlace, moment: datetime, created: datetime
) -> Object:
    """Return the status of an execution that waits for a pod, with the reason and its queue position."""
    text = f"{shorten(message, _MAX_MESSAGE - 128)}; {place}"
    return _merge(
        status,
        phase=Phase.PENDING,
        reason=reason,
        queue=place.to_api(),
        createdAt=micro_time(created),
        conditions=_set_condition(status, "Bound", ConditionStatus.FALSE, reason, text, moment),
    )


def build_bound_status(
    status: Object,
    *,
    pod: str,
    pod_uid: str | None = None,
    node: str | None,
    start: Start,
    ready_seconds: float,
    uses: int = 0,
    digest: str,
    code_findings: list[Object] | None = None,
    skills: Sequence[str] = (),
    moment: datetime,
    created: datetime,
) -> Object:
    """Return the status of an execution that is bound to a pod. It is written before any code runs.

    `uses` are the executions that the pod has served.
    """
    messages = {
        Start.WARM: f"pod {pod} was ready for {ready_seconds:.0f} s",
        Start.COLD: f"pod {pod} was created for it",
        Start.REUSED: f"pod {pod} has served {uses} executions of the same owner",
        Start.SESSION: f"pod {pod} is kept for the session",
    }
    return _merge(
        status,
        phase=Phase.RUNNING,
        reason=Reason.NONE,
        queue=None,
        podName=pod,
        podUid=pod_uid,
        nodeName=node,
        start=start,
        specDigest=digest,
        codeFindings=code_findings or None,
        skills={"used": list(skills)} if skills else None,
        createdAt=micro_time(created),
        boundAt=micro_time(moment),
        durations=Durations(queued=_to_milliseconds(moment - created)).to_api(),
        conditions=_set_condition(status, "Bound", ConditionStatus.TRUE, f"{start}Pod", messages[start], moment),
    )


def build_finished_status(
    status: Object,
    outcome: ExecutionOutcome,
    *,
    moment: datetime,
    created: datetime,
    digest: str | None = None,
    rest_bytes: int = 0,
    limit: int = MAX_STATUS_BYTES,
) -> Object:
    """Return the final status. The output is cut until it has at most `limit` bytes, and fits into the object.

    `digest` is that of the spec, for an execution that was never bound. The object has `rest_bytes` besides.
    """
    output, notes = outcome.output, outcome.notes
    if output is not None:
        limit = min(limit, max(_LEAST_OUTPUT_BYTES, MAX_OBJECT_BYTES - rest_bytes))
        # most outputs are small, and their estimate is far cheaper than the size of the object
        if _estimate_bytes(output) > limit:
            output = fit_output(output, limit)
            notes = add_note(notes, _CUT_TO_FIT)
        # an empty text is a result, and its field has no type that would refuse it
        output = {**drop_empty_fields(output), **({"result": ""} if output.get("result") == "" else {})}
    total = _to_milliseconds(moment - created)
    durations = {**(status.get("durations") or {}), **outcome.durations.to_api(), "total": total}
    finished = outcome.reason or outcome.phase
    return _merge(
        status,
        phase=outcome.phase,
        reason=outcome.reason,
        specDigest=status.get("specDigest") or digest,
        queue=None,
        createdAt=micro_time(created),
        startedAt=micro_time(outcome.started_at) if outcome.started_at else None,
        finishedAt=micro_time(moment),
        duration=format_duration(total),
        durations=durations,
        usage=outcome.usage.to_api() if outcome.usage else None,
        output=output,
        error=drop_empty_fields(outcome.error.to_api()) if outcome.error else None,
        notes=[drop_empty_fields(note.to_api()) for note in notes] or None,
        toolCalls=outcome.tool_calls,
        skills=outcome.skills if outcome.skills is not None else status.get("skills"),
        workspace=outcome.workspace,
        artifacts=outcome.artifacts or None,
        codeFindings=(status.get("codeFindings") if outcome.code_findings is None else outcome.code_findings) or None,
        approvals=(status.get("approvals") if outcome.approvals is None else outcome.approvals) or None,
        conditions=_set_condition(status, "Finished", ConditionStatus.TRUE, finished, outcome.message, moment),
    )


def build_approvals_status(status: Object, approvals: list[Object], *, waited_seconds: float = 0.0) -> Object:
    """Return the status of a running execution with the calls that need or needed an approval, and whether one waits.

    The next operator goes on from `durations.approval`, the time that calls have waited.
    """
    is_waiting = any(approval.get("state") == ApprovalState.PENDING for approval in approvals)
    waited = {"approval": round(waited_seconds * 1000, 3)} if waited_seconds else {}
    return _merge(
        status,
        reason=Reason.AWAITING_APPROVAL if is_waiting else Reason.NONE,
        approvals=approvals or None,
        durations={**(status.get("durations") or {}), **waited} or None,
    )


def read_waited_seconds(status: Object) -> float:
    """Return the seconds that calls of the execution have waited for approvals."""
    return float((status.get("durations") or {}).get("approval") or 0.0) / 1000


def build_changed_status(status: Object, *, fields: list[str], moment: datetime) -> Object:
    """Return the status with the condition that immutable fields were changed, on a cluster that did not reject it."""
    names = " and ".join(f"spec.{name}" for name in fields) or "the spec"
    message = f"{names} changed after creation; the spec that ran, or runs, is the original one"
    return _merge(
        status, conditions=_set_condition(status, "SpecUnchanged", ConditionStatus.FALSE, "Changed", message, moment)
    )


def fit_output(output: Object, limit: int) -> Object:
    """Return the output with its largest parts cut in the middle until all of it has at most `limit` bytes."""
    fitted = dict(output)
    sizes = {name: measure_stored_bytes(fitted.get(name)) for name in _OUTPUT_PARTS}
    while sum(sizes.values()) > limit:
        largest = max(_OUTPUT_PARTS, key=lambda name: sizes[name])
        text = fitted[largest] if isinstance(fitted[largest], str) else json.dumps(fitted[largest])
        fitted[largest] = shorten(text, max(len(text) // 2 - 64, 0))
        fitted["truncated"] = True
        sizes[largest] = measure_stored_bytes(fitted[largest])
    return fitted


def has_condition(status: Object, kind: str) -> bool:
    """Return whether the status has a condition of that type."""
    return any(condition.get("type") == kind for condition in status.get("conditions") or ())


def _estimate_bytes(output: Object) -> int:
    """Return an upper bound of the size of an output: no character takes more than 6 bytes."""
    result, size = output.get("result"), 6 * (len(output["stdout"]) + len(output["stderr"]))
    if result is None or isinstance(result, bool | int | float):
        return size + 32
    return size + (6 * len(result) if isinstance(result, str) else measure_stored_bytes(result))


def _set_condition(
    status: Object, kind: str, holds: ConditionStatus, reason: str, message: str, moment: datetime
) -> list[Object]:
    known = [Condition.model_validate(condition) for condition in status.get("conditions") or ()]
    new = Condition(
        type=kind, status=holds, reason=reason, message=shorten(message, _MAX_MESSAGE), last_transition_time=moment
    )
    return [drop_empty_fields(condition.to_api()) for condition in set_condition(known, new)]


def _merge(status: Object, **fields: Any) -> Object:
    return drop_empty_fields({**status, **fields})


def _to_milliseconds(span: timedelta) -> float:
    return round(max(0.0, span.total_seconds() * 1000), 3)
