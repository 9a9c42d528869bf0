"""The status of a session: pure builders, and its writer."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from mcp_exec_api.files import Owner
from mcp_exec_api.meta import Condition, ConditionStatus, set_condition
from mcp_exec_api.reasons.execution import SessionReason
from mcp_exec_api.sandbox_session import SandboxSessionStatus, SessionPhase, format_memory
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.util.backoff import delay_after
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.features.sessions.record import SessionRecord
from mcp_exec_tools.text import shorten

log = logging.getLogger(__name__)

_MAX_MESSAGE: Final = 1024
_MAX_OWNER: Final = 128
_DURABLE: Final = ("phase", "reason", "podName", "podUid", "resets", "lostReportedTo", "conditions")
"""Fields whose change is written at once; all others are written every few seconds."""
_FIRST_DELAY: Final = 0.05
_LAST_DELAY: Final = 5.0
_MAX_ATTEMPTS: Final = 12
"""About 30 s."""


def find_phase(record: SessionRecord, *, held: bool) -> SessionPhase:
    """Return the phase. `held` says whether an execution has its turn."""
    if record.end is not None:
        return record.end.phase
    if record.pod is None:
        return SessionPhase.PENDING
    return SessionPhase.BUSY if held else SessionPhase.READY


def build_session_status(record: SessionRecord, *, held: bool, queued: int, moment: datetime) -> Object:
    """Return the status of a session, with its conditions' times where they are unchanged."""
    phase = find_phase(record, held=held)
    invalid = bool(record.invalid) and record.pod is None and record.end is None
    reason = SessionReason.INVALID if invalid else record.end.reason if record.end is not None else SessionReason.NONE
    expiry = record.find_expiry()
    status = SandboxSessionStatus(
        phase=phase,
        reason=reason,
        conditions=[_build_condition(record, phase, reason, moment)],
        owner=describe_owner(record.owner),
        owner_digest=record.owner.digest,
        caller=record.owner.caller or None,
        pod_name=record.pod.name if record.pod is not None else None,
        pod_uid=record.pod.seen.uid if record.pod is not None else None,
        node_name=record.pod.seen.node if record.pod is not None else None,
        started_at=record.use.started_at,
        executions=record.use.executions,
        queued=queued,
        memory_bytes=record.use.memory_bytes,
        memory=None if record.use.memory_bytes is None else format_memory(record.use.memory_bytes),
        last_used_at=record.use.last_used_at,
        expires_at=expiry[0] if expiry is not None and record.pod is not None and not held else None,
        ended_at=record.end.at if record.end is not None else None,
        resets=record.resets,
        lost_reported_to=record.lost_reported_to or None,
    )
    fields = drop_empty_fields(status.to_api())
    return {**fields, "conditions": [drop_empty_fields(each) for each in fields["conditions"]]}


def is_urgent(stored: Object, wanted: Object) -> bool:
    """Return whether a difference must be written at once. Ready and Busy alternate with each execution."""
    return any(_comparable(stored, name) != _comparable(wanted, name) for name in _DURABLE)


def describe_owner(owner: Owner) -> str:
    """Return an owner for people."""
    parts = [part for part in (owner.caller, f"user {owner.user}" if owner.user else "") if part]
    return shorten("nobody" if owner.is_nobody else ", ".join(parts), _MAX_OWNER)


def _build_condition(record: SessionRecord, phase: SessionPhase, reason: SessionReason, moment: datetime) -> Condition:
    usable = record.pod is not None and record.end is None
    if reason is SessionReason.INVALID:
        text = record.invalid
    elif record.end is not None:
        text = str(record.end)
    elif usable:
        text = "its interpreter is kept in its pod"
    else:
        text = "it gets a pod with its next execution"
    name = "Kept" if usable else str(reason) or str(phase)
    new = Condition(
        type="Ready",
        status=ConditionStatus.TRUE if usable else ConditionStatus.FALSE,
        reason=name,
        message=shorten(text, _MAX_MESSAGE),
        last_transition_time=moment,
    )
    known = [each for each in record.seen.status.get("conditions") or () if each.get("type") == "Ready"]
    return set_condition([Condition.model_validate(each) for each in known[:1]], new)[0]


def _comparable(status: Object, name: str) -> Any:
    value = status.get(name)
    if name == "phase" and value in (SessionPhase.READY, SessionPhase.BUSY):
        return "kept"
    return value or None


class SessionGone(Exception):
    """The session was deleted."""


@dataclass(frozen=True, kw_only=True)
class SessionStatusWriter:
    """Writes status so that no write is made over another writer's."""

    api: OperatorApi

    async def write(self, record: SessionRecord, build: Callable[[], Object], *, what: str) -> None:
        """Write the status that `build` returns. After a conflict or a lost answer, the object is read and `build`
        called again.

        Raises SessionGone, and ApiError if the API server refuses the status or does not answer for half a minute.
        """
        for failures in range(1, _MAX_ATTEMPTS + 1):
            if record.gone:
                raise SessionGone
            try:
                written = await self.api.replace_status(
                    "SandboxSession", *record.key, version=record.seen.version, status=build(), what=what
                )
            except ApiError as error:
                if error.code == 404:
                    raise SessionGone from error
                if (error.code not in (0, 409, 429) and error.code < 500) or failures == _MAX_ATTEMPTS:
                    raise
                if error.code != 409:
                    log.warning("the status of a session may not be written: %s", error, extra=record.log_fields)
            else:
                record.observe(written)
                return
            await asyncio.sleep(delay_after(failures, first=_FIRST_DELAY, last=_LAST_DELAY))
            await self._refresh(record)

    async def _refresh(self, record: SessionRecord) -> None:
        try:
            body = await self.api.get("SandboxSession", *record.key)
        except ApiError as error:
            log.warning("a session can't be read: %s", error, extra=record.log_fields)
            return
        if body is None or body["metadata"]["uid"] != record.seen.uid:
            raise SessionGone
        record.observe(body)
