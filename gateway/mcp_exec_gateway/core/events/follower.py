"""Events of one execution: live from its pod and, after its end or without its pod, from its status.

Data from a pod is hostile; SupervisorClient bounds and validates it. The `end` event comes only from the status, so a
client that has received it finds the same outcome in every later response.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from mcp_exec_api.code_execution import is_finished
from mcp_exec_api.constants import EXECUTIONS, MAX_APPROVAL_SECONDS, MAX_TIMEOUT_SECONDS
from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import (
    ApprovalEvent,
    ArtifactEvent,
    EndEvent,
    Event,
    ProgressEvent,
    ResultEvent,
    SandboxError,
    SandboxNotProven,
    SkillEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from mcp_exec_common.supervisor.tokens import read_token_digest
from mcp_exec_common.util.weight import weigh
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.executions.index import ExecutionDeleted, ExecutionIndex, is_bound
from mcp_exec_gateway.core.executions.service import may_see_execution
from mcp_exec_gateway.core.http.limits import MemoryBudget
from mcp_exec_gateway.core.http.problems import invalid_field
from mcp_exec_tools.stored_json import write_long_integers

log = logging.getLogger(__name__)

_ID: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})\.(\d{1,3})")
_RUNNING, _RESULT_SENT, _ENDED = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class StreamPosition:
    """What the client has received."""

    seq: int = 0
    """Sequence number of the last event."""
    stdout: int = 0
    """Characters of standard output."""
    stderr: int = 0
    """Characters of standard error."""
    stage: int = _RUNNING

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an event's id. Raises HttpProblem if it is malformed."""
        match = _ID.fullmatch(text)
        if match is None:
            raise invalid_field("lastEventId", "not the id of an event of this stream")
        seq, stdout, stderr, stage = map(int, match.groups())
        return cls(seq=seq, stdout=stdout, stderr=stderr, stage=stage)

    def __str__(self) -> str:
        return f"{self.seq}.{self.stdout}.{self.stderr}.{self.stage}"

    @property
    def has_result(self) -> bool:
        """Whether the result was sent."""
        return self.stage >= _RESULT_SENT

    @property
    def artifacts(self) -> int:
        """Number of artifacts that were sent, all of them from the status."""
        return max(0, self.stage - _ENDED)

    @property
    def ended(self) -> bool:
        """Whether the whole stream was sent."""
        return self.stage == _ENDED

    def skip(self) -> Self:
        """Return the position after an event of the sandbox that is not sent."""
        return replace(self, seq=self.seq + 1)

    def advance(self, event_type: str, text: str = "") -> Self:
        """Return the position after one more event, with its text if it has one."""
        position = replace(self, seq=self.seq + 1)
        match event_type:
            case "artifact":
                return replace(position, stage=max(self.stage, _ENDED) + 1)
            case "stdout":
                return replace(position, stdout=self.stdout + len(text))
            case "stderr":
                return replace(position, stderr=self.stderr + len(text))
            case "result":
                return replace(position, stage=_RESULT_SENT)
            case "end":
                return replace(position, stage=_ENDED)
        return position


_RETRY_DELAYS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, *(1.0,) * 20)
"""Seconds between attempts to read from the pod, which is bound shortly before it receives the code."""
_READ_SECONDS: Final = MAX_TIMEOUT_SECONDS + MAX_APPROVAL_SECONDS + 60.0
_LAST_EVENTS: Final = 1000
"""Events that are still read after the status shows the end, if they have arrived. A hostile pod may send endlessly."""
_END_FIELDS: Final = ("phase", "reason", "error", "start", "podName", "durations", "skills", "notes")
_OUTPUT_TOTALS: Final = ("stdoutBytes", "stderrBytes", "truncated")


@dataclass(frozen=True, kw_only=True)
class EventFrame:
    """One event of a stream, with the position after it."""

    type: str
    position: StreamPosition
    at: str
    fields: dict[str, Any]

    def to_json_data(self) -> dict[str, Any]:
        """Return the event as it is sent."""
        return {
            "id": str(self.position),
            "seq": self.position.seq,
            "at": self.at,
            "type": self.type,
            **self.fields,
        }


@dataclass(kw_only=True)
class EventFollower:
    """Follows the events of one execution from a position to the end."""

    key: ObjectKey
    caller: Caller
    """Who follows. What it may not see is as if it were deleted: another execution may get the same name."""
    kube: KubeClient
    supervisors: SupervisorClient
    index: ExecutionIndex
    memory: MemoryBudget
    position: StreamPosition
    resumed: bool
    """Whether the client has read a part of the stream before."""
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the pod sends its events."""

    async def read_frames(self) -> AsyncGenerator[EventFrame, None]:
        """Yield the events after the position, up to `end`. Raises ApiError, ShuttingDown or HttpProblem."""
        with (
            self.index.wait_for(self.key, is_bound) as binding,
            self.index.wait_for(self.key, is_finished) as ending,
        ):
            try:
                execution = await self._read()
                if not is_bound(execution):
                    if not self.resumed:
                        # not counted by the position: the supervisor's events start at sequence number 1
                        pending = {"phase": "Pending"}
                        yield EventFrame(type="status", position=self.position, at=micro_time(now()), fields=pending)
                    execution = self._admit(await binding or await self._read())
                if not is_finished(execution):
                    pod, uid = execution["status"]["podName"], execution["metadata"]["uid"]
                    del execution  # the run may take minutes
                    async with aclosing(self._read_live(pod, uid, ending)) as frames:
                        async for frame in frames:
                            yield frame
                    execution = self._admit(await ending or await self._read())
                with self.memory.reserving(self.key[0]) as reservation:
                    # the client may accept the output slowly
                    reservation.require(weigh(execution, limit=self.memory.limit))
                    for frame in self._read_status(execution):
                        yield frame
            except ExecutionDeleted:
                yield self._advance("end", at=micro_time(now()), phase=None, reason="Deleted")

    async def _read(self) -> Object:
        path = custom_resource_path(EXECUTIONS, namespace=self.key[0], name=self.key[1])
        return self._admit(await self.kube.find(path))

    def _admit(self, execution: Object | None) -> Object:
        if execution is None or not may_see_execution(execution, caller=self.caller, attestor=self.index.attestor):
            raise ExecutionDeleted(self.key[1])
        return execution

    async def _read_live(
        self, pod: str, uid: str, ending: asyncio.Future[Object | None]
    ) -> AsyncGenerator[EventFrame, None]:
        """Yield the pod's events up to the end of the run, which is left to the status."""
        warned = False
        for delay in _RETRY_DELAYS:
            if ending.done():
                return
            try:
                supervisor = await self._connect(pod)
                _, accepted = await supervisor.get_execution()
                if accepted is not None and accepted != uid:
                    raise SandboxError(f"pod {pod} runs another execution")
                if accepted is not None:
                    events = supervisor.follow_events(
                        uid, from_seq=self.position.seq + 1, timeout_seconds=_READ_SECONDS, opened=self.opened
                    )
                    async with aclosing(_read_until(ending, events)) as live_events:
                        async for event in live_events:
                            if isinstance(event, EndEvent):
                                return
                            if isinstance(event, ArtifactEvent | SkillEvent):
                                # left to the status, like the end that follows
                                self.position = self.position.skip()
                                continue
                            yield self._convert(event)
            except (SandboxError, ApiError) as error:
                strange = isinstance(error, SandboxNotProven) and not warned
                log.log(logging.WARNING if strange else logging.DEBUG, "events of %s/%s: %s", *self.key, error)
                warned |= strange
            await asyncio.wait({ending}, timeout=delay)

    async def _connect(self, pod_name: str) -> SupervisorConnection:
        pod = await self.kube.get(resource_path("pods", namespace=self.key[0], name=pod_name))
        address = (pod.get("status") or {}).get("podIP")
        if not address:
            raise SandboxError(f"pod {pod_name} has no address")
        return self.supervisors.get_connection(
            namespace=self.key[0], pod=pod_name, address=address, digest=read_token_digest(pod)
        )

    def _convert(self, event: Event) -> EventFrame:
        if event.seq != self.position.seq + 1:
            raise SandboxError(f"event {event.seq} follows {self.position.seq}")
        at = micro_time(event.at)
        if isinstance(event, TextEvent):
            return self._advance(event.type, at=at, text=event.text)
        if isinstance(event, ResultEvent):
            # as the status will have it
            value, _ = write_long_integers(event.value, json.dumps(event.value))
            return self._advance("result", at=at, value=value, truncated=event.truncated)
        if isinstance(event, ProgressEvent):
            return self._advance("progress", at=at, done=event.done, total=event.total, text=event.text)
        if isinstance(event, ToolCallEvent | ToolResultEvent | ApprovalEvent):
            # through JSON text, which has null for an infinite number
            fields = json.loads(event.model_dump_json(by_alias=True, exclude_none=True, exclude={"seq", "at", "type"}))
            # `id` is the position in a frame, so the event's own id has another name
            id_field = "approval" if isinstance(event, ApprovalEvent) else "call"
            return self._advance(event.type, at=at, **{id_field: fields.pop("id")}, **fields)
        return self._advance("status", at=at, phase="Running")

    def _read_status(self, execution: Object) -> Iterator[EventFrame]:
        """Yield what the status of a finished execution has beyond the position."""
        status = execution["status"]
        output = status.get("output") or {}
        at = status.get("finishedAt") or micro_time(now())
        if self.position.seq == 0 and status.get("startedAt"):
            yield self._advance("status", at=status["startedAt"], phase="Running")
        if text := output.get("stdout", "")[self.position.stdout :]:
            yield self._advance("stdout", at=at, text=text)
        if text := output.get("stderr", "")[self.position.stderr :]:
            yield self._advance("stderr", at=at, text=text)
        if "result" in output and not self.position.has_result:
            yield self._advance("result", at=at, value=output["result"], truncated=output.get("truncated", False))
        for artifact in (status.get("artifacts") or [])[self.position.artifacts :]:
            fields = {name: value for name, value in artifact.items() if name != "id"}
            yield self._advance("artifact", at=at, artifact=artifact["id"], **fields)
        fields = {"reason": "", **{name: status[name] for name in _END_FIELDS if name in status}}
        totals = {name: output[name] for name in _OUTPUT_TOTALS if name in output}
        yield self._advance("end", at=at, **fields, **totals)

    def _advance(self, event_type: str, /, *, at: str, **fields: Any) -> EventFrame:
        self.position = self.position.advance(event_type, fields.get("text", ""))
        return EventFrame(type=event_type, position=self.position, at=at, fields=fields)


async def _read_until(
    ending: asyncio.Future[Object | None], events: AsyncGenerator[Event, None]
) -> AsyncGenerator[Event, None]:
    """Yield events until the status shows the end of the execution, and then those that have arrived."""
    async with aclosing(events):
        left = _LAST_EVENTS
        while left:
            left -= ending.done()
            next_event = asyncio.ensure_future(anext(events, None))
            either: set[asyncio.Future[Any]] = {next_event, ending}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                event = next_event.result() if next_event.done() else None
            finally:
                if not next_event.done():
                    next_event.cancel()
                    await asyncio.wait({next_event})
            if event is None:
                return
            yield event
