"""Claims of sessions by executions: turns, creation, the pod that is kept, and what a run leaves."""

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import Final

from mcp_exec_api.constants import (
    ANNOTATION_CALLER_PROOF,
    ANNOTATION_CREATED,
    API_VERSION,
    DEFAULT_SESSION_QUEUED,
)
from mcp_exec_api.files import NOBODYS, Owner
from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.broker.attestations import build_creator
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.pods.manifest import session_patch
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.queueing.turns import Turn
from mcp_exec_operator.core.queueing.wait_queue import QueueFull
from mcp_exec_operator.features.sessions.limits import find_excess
from mcp_exec_operator.features.sessions.record import MANAGED, SessionRecord
from mcp_exec_operator.features.sessions.registry import SessionRegistry, SessionSettler
from mcp_exec_operator.features.sessions.status import SessionGone, SessionStatusWriter, build_session_status

SessionTurn = Turn[ObjectKey]

_PROBE_SECONDS: Final = 5.0
"""Delay after a run before the sandbox is asked for its memory, so that runs in quick succession share a request."""
_ATTEMPTS: Final = 3
"""How often a session that was deleted meanwhile is looked for again."""


class SessionUnusable(Exception):
    """An execution that can't run in its session, with the reason of its failure."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class SessionRequest:
    """What an execution requests of a session."""

    uid: str
    """Uid of the execution."""
    key: ObjectKey
    """Namespace and name of the session's object."""
    name: str
    """Name of the session, as its owner says it."""
    owner: Owner
    pool: str


@dataclass(frozen=True, kw_only=True)
class SessionClaims:
    """Claims of sessions. An execution has the turn of its session from `claim` to `leave`."""

    api: OperatorApi
    sessions: SessionRegistry
    settler: SessionSettler
    writer: SessionStatusWriter
    tasks: TaskRegistry
    max_per_owner: int
    max_per_namespace: int

    def join(self, request: SessionRequest, *, wakeup: asyncio.Event) -> SessionTurn:
        """Queue up for a session.

        Raises SessionUnusable if its queue is full, or if it is or could be another owner's.
        """
        if request.owner.is_nobody:
            raise SessionUnusable(Reason.REJECTED, f"spec.session: {NOBODYS}")
        if not request.owner.may_name(request.name):
            message = f"{request.name} ends like the names of sessions of callers and users; choose another"
            raise SessionUnusable(Reason.REJECTED, f"spec.session: {message}")
        record = self.sessions.get(request.key)
        if record is not None:
            _check(record, request)
        limit = DEFAULT_SESSION_QUEUED if record is None else record.seen.spec.max_queued
        try:
            turn = self.sessions.turns.join(request.key, limit=limit, wakeup=wakeup)
        except QueueFull as error:
            raise SessionUnusable(Reason.SESSION_BUSY, f"the session {request.name} is busy: {error}") from error
        self.sessions.touch(request.key)
        return turn

    def hold(self, key: ObjectKey) -> SessionTurn:
        """Return the turn of an execution that an earlier operator bound to the session's pod."""
        record = self.sessions.get(key)
        if record is None:
            self.sessions.interrupted.emit(key, "the session was deleted")
        return self.sessions.turns.hold(key)

    async def claim(self, request: SessionRequest) -> SessionRecord:
        """Return the session of an execution that has its turn, created if it does not exist.

        Its pod is None if it starts afresh: then `keep` gives it one. Raises SessionUnusable, once after its loss too,
        and ApiError.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            record = self.sessions.get(request.key)
            try:
                if record is not None and record.unproven and record.pod is None and record.end is None:
                    await self.api.delete("SandboxSession", *record.key, uid=record.seen.uid, what="session-delete")
                    self.sessions.discard(record)
                    record = None
                if record is None:
                    self._check_bounds(request)
                    record = await self._create(request)
                _check(record, request)
                return await self._prepare(record, request)
            except SessionGone:
                if record is not None:
                    self.sessions.discard(record)
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError  # the last attempt returns or raises

    async def keep(self, record: SessionRecord, pool: Pool, pod: Pod) -> None:
        """Keep a pod for a session, before the first code runs in it.

        Raises SessionGone if the session was deleted: the pod can be kept for another session of the owner. Raises
        ApiError, and the pod is deleted. After a cancellation it is unknown what was written, so the session has the
        pod nevertheless.
        """
        record.start(pod, moment=now())
        try:
            await self._make_durable(record)
        except SessionGone:
            record.discard_pod()
            self.sessions.discard(record)
            raise
        except Exception:
            self.sessions.renew(record)
            raise
        finally:
            record.starting = False
            pool.changed()  # for its status

    def leave(self, turn: SessionTurn, *, uid: str, pod: Pod | None, reason: Reason | None) -> bool:
        """End the turn of an execution. Return whether its pod, if it was bound to one, belongs to the session.

        `reason` is that of its end, None if it is unknown. If the interpreter may be lost, the sandbox is asked what is
        left before the next turn begins. After SessionLost the next execution starts afresh.
        """
        record = self.sessions.get(turn.key)
        if record is not None:
            record.starting = False
        if record is None or pod is None or record.pod is not pod:
            self.sessions.turns.leave(turn)
            self.sessions.touch(turn.key)
            return False
        record.use.count(now())
        record.schedule.probe_at = min(record.schedule.probe_at, monotonic() + _PROBE_SECONDS)
        self.sessions.watch_pod(record)
        if reason is Reason.SESSION_LOST:
            self.sessions.renew(record)
            record.lost_reported_to = uid
        elif reason is None or not reason.is_clean:
            self.tasks.spawn(self.settler.finish(record, turn), name=f"settle session {record.name}")
            return True
        self.sessions.turns.leave(turn)
        self.sessions.touch(turn.key)
        return True

    def leave_undecided(self, turn: SessionTurn) -> None:
        """End the turn of an execution that another operator decides about."""
        if (record := self.sessions.get(turn.key)) is not None:
            record.unsettled, record.starting = record.pod is not None, False
        self.sessions.turns.leave(turn)
        self.sessions.touch(turn.key)

    async def _prepare(self, record: SessionRecord, request: SessionRequest) -> SessionRecord:
        if record.is_reset:
            self.sessions.reset(record)
        if record.unsettled:
            await self.settler.settle(record)
        self.sessions.end_if_due(record, moment=now())  # the controller may not have done it yet
        if record.end is not None:
            await self._report_loss(record, request.uid)
        if record.lost_reported_to == request.uid:
            raise SessionUnusable(Reason.SESSION_LOST, f"the session {request.name} was lost; run it again")
        if record.pod is not None:
            if not record.is_durable:
                await self._make_durable(record)
            return record
        self._check_bounds(request)
        record.starting = True
        return record

    def _check_bounds(self, request: SessionRequest) -> None:
        """Raise SessionUnusable if the owner or the namespace must not have another session."""
        excess = find_excess(
            self.sessions.index,
            request.owner,
            max_per_owner=self.max_per_owner,
            max_per_namespace=self.max_per_namespace,
        )
        if excess:
            raise SessionUnusable(Reason.SESSION_LIMIT, excess)

    async def _report_loss(self, record: SessionRecord, uid: str) -> None:
        """Record durably that this execution reports the loss, and end it so."""
        message = f"the session {record.seen.spec.name or record.name} was lost: {record.end}; "
        message += "the next execution starts afresh"
        self.sessions.renew(record)
        record.lost_reported_to = uid
        await self.writer.write(record, lambda: self._build(record), what="session-lost")
        raise SessionUnusable(Reason.SESSION_LOST, message)

    async def _make_durable(self, record: SessionRecord) -> None:
        """Write status and labels, so that the next operator finds the pod."""
        pod = record.pod
        assert pod is not None  # noqa: S101 - the callers have checked it
        patch = session_patch(session=record.name, owner=record.owner.digest, pod_uid=pod.seen.uid or "")
        ends = await asyncio.gather(
            self.writer.write(record, lambda: self._build(record), what="session-start"),
            self.api.patch_pod(record.key[0], pod.name, patch),
            return_exceptions=True,
        )
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        pod.note_label()
        pod.use.owner = record.owner.digest

    def _build(self, record: SessionRecord) -> Object:
        queued = self.sessions.turns.count_waiting(record.key)
        return build_session_status(record, held=True, queued=queued, moment=now())

    async def _create(self, request: SessionRequest) -> SessionRecord:
        """Create a session, or return the one that was created meanwhile."""
        namespace, name = request.key
        labels, annotations = build_creator(request.owner.caller)
        spec = {"name": request.name, "poolRef": {"name": request.pool}}
        body: Object = {
            "apiVersion": API_VERSION,
            "kind": "SandboxSession",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {**MANAGED, **labels},
                "annotations": {ANNOTATION_CREATED: micro_time(now()), **annotations},
            },
            "spec": spec | ({"user": request.owner.user} if request.owner.user else {}),
        }
        if labels:
            body["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = self.sessions.attestor.sign_caller(body)
        try:
            stored: Object | None = await self.api.create(body, what="session-create")
        except ApiError as error:
            if error.code != 409:
                raise
            stored = await self.api.get("SandboxSession", namespace, name)
        record = self.sessions.observe(stored, deleted=False) if stored is not None else None
        if record is None:
            raise SessionGone
        return record


def _check(record: SessionRecord, request: SessionRequest) -> None:
    """Raise SessionUnusable if an execution must not use a session."""
    if not record.owner.same_as(request.owner):
        raise SessionUnusable(Reason.REJECTED, f"spec.session: the session {record.name} is another owner's")
    if record.invalid:
        raise SessionUnusable(Reason.REJECTED, f"spec.session: the session {record.name} is invalid: {record.invalid}")
    if record.pool[1] != request.pool:
        message = f"spec.poolRef.name: {request.pool} is not the pool of the session {request.name}, {record.pool[1]}"
        raise SessionUnusable(Reason.REJECTED, message)
