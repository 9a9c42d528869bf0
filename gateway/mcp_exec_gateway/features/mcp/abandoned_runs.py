"""Runs whose clients left without the answer: they are marked, cancelled if nobody asks again, and found once."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from mcp_exec_api.code_execution import is_finished
from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.features.mcp.calls import (
    ANNOTATION_CALL,
    ANNOTATION_UNDELIVERED,
    UNKNOWN_DIGEST,
    CallCache,
    CalledRun,
    CallIdentity,
    Mark,
    create_holder,
    read_holder,
)

log = logging.getLogger(__name__)

KEPT_SECONDS: Final = 300.0
"""Seconds since its client left. A call that is repeated later is a new one, unless the run goes on."""
GRACE_SECONDS: Final = 20.0
"""Least time that a client that gave up has to ask again before its run is cancelled. Who has waited for longer has
as long again: a model repeats a call after its time-out, and a user who stops one does so sooner."""
MAX_GRACE_SECONDS: Final = 60.0
_SAME_SESSION_SECONDS: Final = 3.0
"""Least age of a run that the same session may ask for again, though its stream is still open. Clients do not time out
sooner, and a model's parallel calls come sooner."""
_MARK_AGE_SECONDS: Final = 1.0
"""Least age of a run of another connection whose client may have just left."""
_MARK_SECONDS: Final = 0.3
"""Time that the replica of that connection needs to mark it."""
_LEAVING_SECONDS: Final = 2.0
_MAX_ATTEMPTS: Final = 5
_MAX_TIMERS: Final = 1000


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """The run that a call belongs to, and its holder from now on."""

    key: ObjectKey
    holder: str


class Departure(Enum):
    """What becomes of a run when its client has left."""

    CONTINUE = auto()
    """It runs to its end."""
    CANCEL_LATER = auto()
    """It is cancelled if nobody asks for it within the time of grace."""
    CANCEL = auto()
    """It is cancelled."""


@dataclass(kw_only=True, eq=False)
class AbandonedRuns:
    """Runs that nobody follows. What is known of them is in their annotations, so any replica finds them."""

    kube: KubeClient
    attestor: Attestor
    cache: CallCache
    grace_seconds: float = GRACE_SECONDS
    clock: Callable[[], float] = time.time
    _timers: "set[asyncio.Task[None]]" = field(default_factory=set, init=False)

    def create_call(
        self, spec: Mapping[str, Any], *, caller: Caller, conversation: str, session_id: str | None
    ) -> CallIdentity:
        """Return the call of a spec, as the API server receives it."""
        return CallIdentity.create(
            spec, keys=self.attestor.keys, caller=caller, conversation=conversation, session_id=session_id
        )

    # the client leaves

    async def leave(self, key: ObjectKey, *, holder: str | None, departure: Departure) -> None:
        """Mark a run whose client left without the answer. Best effort: the API server's errors are logged.

        `holder` is what `read_holder` returned when the client began to follow the run. If another request follows it
        since, nothing happens. None stands for whoever follows it.
        """
        with self.cache.leaving(key):
            try:
                mark = await self._mark(key, holder=holder, departure=departure)
            except ApiError as error:
                log.warning("a run without a client is not marked: %s/%s: %s", *key, error)
                return
        if mark is not None and departure is Departure.CANCEL_LATER and len(self._timers) < _MAX_TIMERS:
            run = self.cache.get(key)
            waited = self._compute_age(run) if run else 0.0
            seconds = min(max(waited, self.grace_seconds), MAX_GRACE_SECONDS)
            timer = asyncio.create_task(self._cancel_later(key, mark, seconds=seconds))
            self._timers.add(timer)
            timer.add_done_callback(self._timers.discard)

    async def _mark(self, key: ObjectKey, *, holder: str | None, departure: Departure) -> Mark | None:
        """Return the mark of a run that nobody follows now and that may still end otherwise, else None."""
        for _ in range(_MAX_ATTEMPTS):
            execution = await self.kube.find(_build_path(key))
            if execution is None or execution["spec"].get("cancelRequested") or Mark.read(execution["metadata"]):
                return None
            if holder not in (None, read_holder(execution)):
                return None
            call = CallIdentity.read(execution["metadata"])
            ended = is_finished(execution)
            mark = Mark(
                digest=call.digest if call else UNKNOWN_DIGEST,
                milliseconds=int(self.clock() * 1000),
                cancelled=departure is Departure.CANCEL and not ended,
            )
            if await self._patch(execution, str(mark), cancel=mark.cancelled) is not None:
                return None if ended else mark
        return None

    async def _cancel_later(self, key: ObjectKey, mark: Mark, *, seconds: float) -> None:
        """Cancel a run unless somebody has asked for it by then."""
        await asyncio.sleep(seconds)
        cancelled = Mark(digest=mark.digest, milliseconds=mark.milliseconds, cancelled=True)
        try:
            for _ in range(_MAX_ATTEMPTS):
                execution = await self.kube.find(_build_path(key))
                if execution is None or is_finished(execution) or read_holder(execution) != str(mark):
                    return
                if await self._patch(execution, str(cancelled), cancel=True) is not None:
                    return
        except ApiError as error:
            log.warning("a run without a client is not cancelled: %s/%s: %s", *key, error)

    # the client asks again

    async def find(self, call: CallIdentity, *, caller: Caller, labels: Mapping[str, str]) -> FoundRun | None:
        """Return the run that a call belongs to, or None if the call is a new one.

        The run gets the labels of the request that follows it now. Each run is returned to one request only. Raises
        ApiError.
        """
        for digest in call.digests:
            index = (caller.namespace, digest)
            if not self.cache.find(*index):
                continue
            await self._settle(call, index)
            for run in self.cache.find(*index):
                if not (run.mark or self._may_be_left_open(run, call)):
                    continue
                found = await self._take(run.key, call, caller=caller, labels=labels)
                if found is not None:
                    return found
        return None

    async def _settle(self, call: CallIdentity, index: tuple[str, str]) -> None:
        """Wait until the run of a client that is leaving right now has its mark."""

        def is_leaving() -> bool:
            return any(self.cache.is_leaving(run.key) for run in self.cache.find(*index))

        def may_be_leaving() -> bool:
            runs = self.cache.find(*index)
            return not any(run.mark or self._may_be_left_open(run, call) for run in runs) and any(
                self._compute_age(run) >= _MARK_AGE_SECONDS for run in runs
            )

        await self.cache.wait_while(may_be_leaving, index, seconds=_MARK_SECONDS)
        await self.cache.wait_while(is_leaving, index, seconds=_LEAVING_SECONDS)

    def _may_be_left_open(self, run: CalledRun, call: CallIdentity) -> bool:
        """Return whether the same client asks again without having ended its first request."""
        is_same = call.session != "" and run.call.session == call.session
        return is_same and run.mark is None and self.clock() - run.followed >= _SAME_SESSION_SECONDS

    def _compute_age(self, run: CalledRun) -> float:
        return self.clock() - run.created

    async def _take(
        self, key: ObjectKey, call: CallIdentity, *, caller: Caller, labels: Mapping[str, str]
    ) -> FoundRun | None:
        holder = self._create_holder()
        for _ in range(_MAX_ATTEMPTS):
            execution = await self.kube.find(_build_path(key))
            if execution is None:
                return None
            if read_holder(execution) == holder:
                return FoundRun(key=key, holder=holder)  # the response to an earlier attempt was lost
            if not self._belongs_to(execution, call, caller):
                return None
            annotations = {ANNOTATION_CALL: str(call)}
            taken = await self._patch(execution, holder, labels=labels, annotations=annotations)
            if taken is not None:
                return None if _did_nothing(taken) else FoundRun(key=key, holder=holder)
        return None

    def _belongs_to(self, execution: Object, call: CallIdentity, caller: Caller) -> bool:
        """Return whether the call of this caller may have this run: its answer is old, but nobody had it."""
        answered, mark = CallIdentity.read(execution["metadata"]), Mark.read(execution["metadata"])
        if (
            answered is None
            or answered.digest not in call.digests
            or self.attestor.read_caller(execution) != caller.label
        ):
            return False
        # a client that cancels its run and calls again wants a new one
        if execution["spec"].get("cancelRequested") and not (mark and mark.cancelled):
            return False
        if mark is None:
            run = CalledRun.from_object(execution, call=answered, mark=None)
            return not is_finished(execution) and self._may_be_left_open(run, call)
        return not is_finished(execution) or self.clock() - mark.milliseconds / 1000 <= KEPT_SECONDS

    def _create_holder(self) -> str:
        return create_holder(int(self.clock() * 1000))

    async def resume(self, execution: Object, *, takes: bool = False) -> str:
        """Return the holder of a run that its client resumes. A mark is taken back. Raises ApiError.

        `takes` says that an earlier request may still follow the run, whose end then means nothing.
        """
        key = (execution["metadata"]["namespace"], execution["metadata"]["name"])
        await self.cache.wait_while(
            lambda: self.cache.is_leaving(key), (key[0], _read_digest(execution)), seconds=_LEAVING_SECONDS
        )
        current: Object | None = execution
        for _ in range(_MAX_ATTEMPTS):
            if current is None or not (Mark.read(current["metadata"]) or (takes and not is_finished(current))):
                break
            holder = self._create_holder()
            if await self._patch(current, holder) is not None:
                return holder
            current = await self.kube.find(_build_path(key))
        return read_holder(current or execution)

    async def note_delivery(self, key: ObjectKey) -> None:
        """Take back a mark that came after the client resumed the run, whose answer it has now."""
        run = self.cache.get(key)
        if run is None or run.mark is None:
            return
        try:
            execution = await self.kube.find(_build_path(key))
            if execution is not None:
                await self.resume(execution)
        except ApiError as error:
            log.warning("the mark of a delivered answer stays: %s/%s: %s", *key, error)

    # the API server

    async def _patch(
        self,
        execution: Object,
        holder: str,
        *,
        cancel: bool = False,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Object | None:
        """Change an execution that nobody has changed since, and return it. Returns None if somebody has."""
        metadata = execution["metadata"]
        body: dict[str, Any] = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "labels": dict(labels or {}),
                "annotations": {**(annotations or {}), ANNOTATION_UNDELIVERED: holder},
            }
        }
        if cancel:
            body["spec"] = {"cancelRequested": True}
        try:
            patched = await self.kube.patch(_build_path((metadata["namespace"], metadata["name"])), body)
        except ApiError as error:
            if error.code in (404, 409):
                return None
            raise
        self.cache.observe(patched)
        return patched


def _did_nothing(execution: Object) -> bool:
    """Return whether a run was cancelled before it called a tool: then the call may as well start from its begin."""
    status = execution.get("status") or {}
    return is_finished(execution) and status.get("phase") == "Cancelled" and not _count_tool_calls(execution)


def may_have_had_effects(execution: Object) -> bool:
    """Return whether code that runs again could do something twice: it called a tool, or keeps variables or files."""
    spec = execution["spec"]
    return bool(_count_tool_calls(execution) or spec.get("session") or spec.get("workspace"))


def _count_tool_calls(execution: Object) -> int:
    return ((execution.get("status") or {}).get("toolCalls") or {}).get("total") or 0


def _read_digest(execution: Object) -> str:
    call = CallIdentity.read(execution["metadata"])
    return call.digest if call else ""


def _build_path(key: ObjectKey) -> str:
    return custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1])
