"""The events of one execution: live from its pod, and once it ended, or the pod is gone, from its status.

What a pod says is hostile input; it is bounded and validated where it is read. The `end` is told from the status
alone, so who has seen it finds the same in every later answer.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_api.constants import EXECUTIONS, MAX_TIMEOUT_SECONDS
from mcp_exec_api.execution_state import is_finished
from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import (
    ApprovalEvent,
    EndEvent,
    Event,
    ResultEvent,
    SandboxError,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from mcp_exec_gateway.events.position import Position
from mcp_exec_gateway.executions.index import Executions, Gone, is_bound

log = logging.getLogger(__name__)

_DELAYS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, *(1.0,) * 20)
"""Seconds between attempts to read from the pod, which is bound a little before it has the code."""
_READ_SECONDS: Final = MAX_TIMEOUT_SECONDS + 60.0
_END_FIELDS: Final = ("phase", "reason", "error", "start", "podName", "durations")
_TOTALS: Final = ("stdoutBytes", "stderrBytes", "truncated")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One event with the position after it."""

    type: str
    position: Position
    at: str
    fields: dict[str, Any]

    def data(self) -> dict[str, Any]:
        """The event as it is sent."""
        return {
            "id": str(self.position),
            "seq": self.position.seq,
            "at": self.at,
            "type": self.type,
            **self.fields,
        }


@dataclass(kw_only=True)
class Follower:
    """Follows one execution from a position to its end."""

    key: ObjectKey
    kube: KubeClient
    sandboxes: SupervisorClient
    executions: Executions
    position: Position
    resumed: bool
    """Whether the reader has come before."""

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """The events after the position, up to `end`. Raises ApiError, Released or Problem where it can't go on."""
        with (
            self.executions.until(self.key, is_bound) as binding,
            self.executions.until(self.key, is_finished) as ending,
        ):
            try:
                execution = await self.kube.get(
                    custom_resource_path(EXECUTIONS, namespace=self.key[0], name=self.key[1])
                )
                if not is_bound(execution):
                    if not self.resumed:
                        yield Frame(
                            type="status", position=self.position, at=micro_time(now()), fields={"phase": "Pending"}
                        )
                    execution = await binding
                if not is_finished(execution):
                    async with aclosing(self._live(execution, ending)) as live:
                        async for frame in live:
                            yield frame
                    execution = await ending
                for frame in self._rest(execution):
                    yield frame
            except Gone:
                yield self._step("end", at=micro_time(now()), phase=None, reason="Deleted")

    async def _live(self, execution: Object, ending: asyncio.Future[Object]) -> AsyncGenerator[Frame, None]:
        """What the pod tells, to the run's end; the end itself is left to the status."""
        pod, uid = execution["status"]["podName"], execution["metadata"]["uid"]
        for delay in _DELAYS:
            if ending.done():
                return
            try:
                sandbox = await self._sandbox(pod)
                _, accepted = await sandbox.get_execution()
                if accepted is not None and accepted != uid:
                    raise SandboxError(f"pod {pod} runs another execution")
                if accepted is not None:
                    events = sandbox.follow_events(from_seq=self.position.seq + 1, timeout_seconds=_READ_SECONDS)
                    async with aclosing(_before(ending, events)) as heard:
                        async for event in heard:
                            if isinstance(event, EndEvent):
                                return
                            yield self._take(event)
            except (SandboxError, ApiError) as error:
                log.debug("events of %s/%s: %s", *self.key, error)
            await asyncio.wait({ending}, timeout=delay)

    async def _sandbox(self, pod: str) -> SupervisorConnection:
        found = await self.kube.get(resource_path("pods", namespace=self.key[0], name=pod))
        address = (found.get("status") or {}).get("podIP")
        if not address:
            raise SandboxError(f"pod {pod} has no address")
        return self.sandboxes.get_connection(namespace=self.key[0], pod=pod, address=address)

    def _take(self, event: Event) -> Frame:
        if event.seq != self.position.seq + 1:
            raise SandboxError(f"event {event.seq} came after {self.position.seq}")
        at = micro_time(event.at)
        if isinstance(event, TextEvent):
            return self._step(event.type, at=at, text=event.text)
        if isinstance(event, ResultEvent):
            return self._step("result", at=at, value=event.value, truncated=event.truncated)
        if isinstance(event, ToolCallEvent | ToolResultEvent | ApprovalEvent):
            # by way of text, in which an infinity is null
            told = json.loads(event.model_dump_json(by_alias=True, exclude_none=True, exclude={"seq", "at", "type"}))
            # the frame's own id is its position
            what = "approval" if isinstance(event, ApprovalEvent) else "call"
            return self._step(event.type, at=at, **{what: told.pop("id")}, **told)
        return self._step("status", at=at, phase="Running")

    def _rest(self, execution: Object) -> Iterator[Frame]:
        """What the status has beyond the position."""
        status = execution["status"]
        output = status.get("output") or {}
        at = status.get("finishedAt") or micro_time(now())
        if self.position.seq == 0 and status.get("startedAt"):
            yield self._step("status", at=status["startedAt"], phase="Running")
        if text := output.get("stdout", "")[self.position.stdout :]:
            yield self._step("stdout", at=at, text=text)
        if text := output.get("stderr", "")[self.position.stderr :]:
            yield self._step("stderr", at=at, text=text)
        if "result" in output and not self.position.has_result:
            yield self._step("result", at=at, value=output["result"], truncated=output.get("truncated", False))
        fields = {name: status[name] for name in _END_FIELDS if name in status}
        totals = {name: output[name] for name in _TOTALS if name in output}
        yield self._step("end", at=at, **fields, **totals)

    def _step(self, kind: str, /, *, at: str, **fields: Any) -> Frame:
        self.position = self.position.after(kind, fields.get("text", ""))
        return Frame(type=kind, position=self.position, at=at, fields=fields)


async def _before(ending: asyncio.Future[Object], events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """The events until the execution has ended by its status: from then on the pod has nothing to add."""
    async with aclosing(events):
        while True:
            following = asyncio.ensure_future(anext(events, None))
            either: set[asyncio.Future[Any]] = {following, ending}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                event = following.result() if following.done() else None
            finally:
                if not following.done():
                    following.cancel()
                    await asyncio.wait({following})
            if event is None:
                return
            yield event
