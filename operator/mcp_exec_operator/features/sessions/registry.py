"""All sessions of the served namespaces in memory: their records, pods and turns."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import SessionReason
from mcp_exec_api.sandbox_session import SessionPhase
from mcp_exec_common.broker.attestations import CLAIMED, Attestor, select_proof
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_common.util.backoff import delays
from mcp_exec_common.util.signals import Signal
from mcp_exec_operator.cluster.kube.observations import DeletedUids
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.pools.health import SessionPods
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.core.queueing.turns import SerialQueue, Turn
from mcp_exec_operator.features.sessions.record import SessionEnd, SessionRecord

log = logging.getLogger(__name__)

_RESET: Final = "the session was reset"
_DELETED: Final = "the session was deleted"
_SECONDS: Final = 15.0
"""How long a sandbox may take to answer, and to end a run."""
_FIRST_DELAY: Final = 0.02
_LAST_DELAY: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class SessionIndex:
    """All sessions by key, and whose turn it is. Pools ask it for the pods that sessions keep."""

    records: dict[ObjectKey, SessionRecord] = field(default_factory=dict)
    turns: SerialQueue[ObjectKey] = field(default_factory=SerialQueue)

    def __iter__(self) -> Iterator[SessionRecord]:
        return iter(list(self.records.values()))

    def list_pods(self) -> set[ObjectKey]:
        """Return namespace and name of the pods that sessions keep."""
        return {(record.key[0], record.pod.name) for record in self if record.pod is not None}

    def find_pods(self, pool: ObjectKey) -> SessionPods:
        """Return the pods of a pool that sessions keep."""
        kept = [record for record in self if record.pod is not None and record.pool == pool]
        idle = [record for record in kept if not record.starting and not self.turns.is_held(record.key)]
        ends = [record.find_expiry() for record in idle]
        until = min((end[0] for end in ends if end is not None), default=None)
        return SessionPods(kept=len(kept), idle=len(idle), idle_until=until)


@dataclass(kw_only=True, eq=False)
class SessionRegistry:
    """Feeds sessions with observed objects, and ends them. `wakeup` is set when the controller has work."""

    index: SessionIndex
    pools: PoolRegistry
    attestor: Attestor
    interrupted: Signal[[ObjectKey, str]] = field(default_factory=Signal)
    """Sent when what runs in a session must be cancelled, with the key of the session and the cause."""
    turns: SerialQueue[ObjectKey] = field(init=False)
    """Whose turn it is, by the key of the session."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    _deleted: DeletedUids = field(default_factory=DeletedUids)

    def __post_init__(self) -> None:
        self.turns = self.index.turns
        self.pools.removed.connect(self._lose_pool)

    def __iter__(self) -> Iterator[SessionRecord]:
        return iter(self.index)

    def changed(self) -> None:
        """Have the sessions reconciled soon."""
        self.wakeup.set()

    def touch(self, key: ObjectKey) -> None:
        """Let the controller look at a session that may have changed."""
        if (record := self.index.records.get(key)) is not None:
            record.schedule.dirty = True
        self.changed()

    def get(self, key: ObjectKey) -> SessionRecord | None:
        """Return a session, or None if it is not known."""
        return self.index.records.get(key)

    def observe(self, body: Object, *, deleted: bool) -> SessionRecord | None:
        """Take in a session's object of a watch, a list or an answer. Return its record if it exists."""
        key, uid = object_key(body), body["metadata"]["uid"]
        known = self.index.records.get(key)
        if deleted:
            self._deleted.add(uid)
        elif uid in self._deleted:
            return None
        if known is not None and known.seen.uid != uid:
            if deleted:
                return known
            self.discard(known)
            known = None
        if deleted:
            if known is not None:
                self.discard(known)
            return None
        if known is None:
            known = self.index.records[key] = SessionRecord.from_object(body, caller=self.attestor.read_caller(body))
            self._adopt_pod(known)
        else:
            known.observe(body)
            self._renew_proof(known, body)
            if known.is_reset and self.turns.is_held(key):
                self.interrupted.emit(key, _RESET)
        self.touch(key)
        return known

    def replace(self, namespace: str, bodies: list[Object], *, listed_at: datetime) -> int:
        """Process a full list of a namespace. Return how many sessions no watch had reported."""
        bodies = [body for body in bodies if body["metadata"]["uid"] not in self._deleted]
        missed = sum(object_key(body) not in self.index.records for body in bodies)
        for body in bodies:
            self.observe(body, deleted=False)
        uids = {body["metadata"]["uid"] for body in bodies}
        for record in self:
            if record.key[0] == namespace and record.seen.uid not in uids and record.first_seen < listed_at:
                self.discard(record)
        return missed

    def discard(self, record: SessionRecord) -> None:
        """Discard a session that does not exist any more."""
        if self.index.records.get(record.key) is not record:
            return
        record.gone = True
        self._deleted.add(record.seen.uid)
        del self.index.records[record.key]
        if self.turns.is_held(record.key):
            self.interrupted.emit(record.key, _DELETED)
            record.discard_pod()  # the execution that runs in the pod deletes it at its end
        else:
            self._release_pod(record)

    def lose(self, record: SessionRecord, reason: SessionReason, message: str) -> None:
        """Record that interpreter and files of a session are gone, and delete its pod."""
        self._end(record, SessionPhase.LOST, reason, message)

    def end_if_lost(self, record: SessionRecord) -> bool:
        """End a session if its pod is lost, or if the key that proved its owner or its pod was withdrawn.

        Return whether it has ended.
        """
        pod = record.pod
        if pod is None:
            return False
        if record.unproven or self.pools.has_withdrawn_key(record.key[0], pod):
            self.lose(record, SessionReason.KEY_WITHDRAWN, SessionReason.KEY_WITHDRAWN.meaning)
        elif pod.lost:
            body = pod.seen.body if pod.seen.has_ended else None
            loss = self.pools.nodes.explain_loss(body, name=pod.name, node=pod.seen.node)
            self.lose(record, SessionReason.POD_LOST, f"{loss.reason}: {loss.message}")
        else:
            return False
        return True

    def end_if_due(self, record: SessionRecord, *, moment: datetime) -> bool:
        """End a session that is lost, or whose time is over. Return whether it has ended."""
        if self.end_if_lost(record):
            return True
        expiry = record.find_expiry() if record.pod is not None else None
        if expiry is None or expiry[0] > moment:
            return False
        self._end(record, SessionPhase.ENDED, expiry[1], expiry[1].meaning)
        return True

    def renew(self, record: SessionRecord) -> None:
        """Let the next execution start afresh, and delete the pod if there is one."""
        self._release_pod(record)
        self.touch(record.key)

    def reset(self, record: SessionRecord) -> None:
        """Start afresh, because the spec asks for it."""
        self.renew(record)
        record.resets = record.seen.spec.resets

    def check_proofs(self) -> None:
        """Look at all sessions after a key was withdrawn."""
        for record in self:
            if record.proof is not None and self.attestor.read_listed_caller(record.proof).startswith(CLAIMED):
                record.unproven, record.proof = True, None
            record.schedule.dirty = True
        self.changed()

    def _renew_proof(self, record: SessionRecord, body: Object) -> None:
        """Keep the proof that a rotation has renewed."""
        proof = select_proof(body["metadata"])
        if record.proof not in (None, proof) and self.attestor.read_caller(body) == record.owner.caller:
            record.proof = proof

    def _lose_pool(self, pool: Pool) -> None:
        """End the sessions of a pool that was deleted."""
        for record in self:
            if record.pod is not None and record.pool == (pool.namespace, pool.name):
                self.lose(record, SessionReason.POOL_DELETED, f"the pool {pool.name} was deleted")

    def release_namespace(self, namespace: str) -> None:
        """Delete the pods of a namespace that is being deleted, before its NetworkPolicies go."""
        for record in self:
            if record.key[0] == namespace:
                self._release_pod(record)

    def _adopt_pod(self, record: SessionRecord) -> None:
        """Keep the pod that the status of a session names, which an earlier operator gave it."""
        stored = record.find_stored_pod()
        if stored is None:
            return
        name, uid = stored
        record.pod = self.pools.get(record.pool).pods.adopt(name, uid=uid, now=monotonic())
        record.unsettled = True
        record.schedule.probe_at = monotonic()
        self.watch_pod(record)

    def watch_pod(self, record: SessionRecord) -> None:
        """Let the loss of a session's idle pod wake the controller."""
        if record.pod is not None:
            record.pod.wakeup = self.wakeup
            if record.pod.lost:
                self.changed()

    def _end(self, record: SessionRecord, phase: SessionPhase, reason: SessionReason, message: str) -> None:
        log.info("session %s: %s: %s", phase, reason, message, extra=record.log_fields)
        self._release_pod(record)
        record.end = SessionEnd(phase=phase, reason=reason, message=message, at=now())
        self.touch(record.key)

    def _release_pod(self, record: SessionRecord) -> None:
        record.unused_since = now()
        if (pod := record.discard_pod()) is not None:
            self.pools.release(self.pools.get(record.pool), pod)


@dataclass(frozen=True, kw_only=True)
class SessionSettler:
    """Asks sandboxes. Nothing runs in a session meanwhile."""

    sessions: SessionRegistry
    supervisors: SupervisorClient
    tasks: TaskRegistry

    def start(self, record: SessionRecord) -> None:
        """Settle an idle session in the background, with its turn."""
        turn = self.sessions.turns.hold(record.key)
        self.tasks.spawn(self.finish(record, turn), name=f"settle session {record.name}")

    async def finish(self, record: SessionRecord, turn: Turn[ObjectKey]) -> None:
        """Settle a session and end the turn of the execution that had it."""
        try:
            await self.settle(record)
        finally:
            self.sessions.turns.leave(turn)
            self.sessions.watch_pod(record)
            self.sessions.touch(record.key)

    async def settle(self, record: SessionRecord) -> None:
        """End what may still run in the session's sandbox. If its interpreter is gone, the session is lost."""
        pod = record.pod
        if pod is None or self.sessions.end_if_lost(record):
            return
        lost: tuple[SessionReason, str] | None = SessionReason.POD_LOST, "its sandbox did not answer"
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS):
                lost = await self._ask(record)
        if record.pod is not pod or pod.lost:
            return  # the controller finds the cause
        if lost is not None:
            log.warning("a session was lost: %s", lost[1], extra=record.log_fields)
            self.sessions.lose(record, *lost)
        record.unsettled = False

    def connect(self, record: SessionRecord, pod: Pod) -> SupervisorConnection:
        """Return the connection to the sandbox of a session."""
        return self.supervisors.get_connection(
            namespace=record.key[0], pod=pod.name, address=pod.seen.address, digest=pod.seen.token_sha256
        )

    async def _ask(self, record: SessionRecord) -> tuple[SessionReason, str] | None:
        """Return why the session is lost, or None once its sandbox is idle and has its interpreter."""
        for delay in delays(first=_FIRST_DELAY, last=_LAST_DELAY):
            pod = record.pod
            if pod is None or pod.lost:
                return None
            if pod.seen.address:
                connection = self.connect(record, pod)
                try:
                    state, uid = await connection.get_execution()
                    if uid is None and state == "idle":
                        return None  # nothing ran in it yet
                    if state == "running" and uid is not None:
                        await connection.cancel(uid)
                    elif state in ("idle", "finished"):
                        found = await connection.get_session()
                        if state == "idle" and found.alive:
                            record.use.memory_bytes = found.memory_bytes
                            return None
                        return SessionReason.INTERPRETER_LOST, SessionReason.INTERPRETER_LOST.meaning
                except SandboxError as error:
                    log.info("the sandbox of a session did not answer: %s", error, extra=record.log_fields)
            await asyncio.sleep(delay)
        return None
