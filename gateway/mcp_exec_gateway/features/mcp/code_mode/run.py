"""One run as its client follows it: progress, approvals, the end, and what happens if the client leaves."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Self

from mcp_types import CallToolResult, ElicitRequest, InputRequest, InputRequiredResult

from mcp_exec_api.code_execution import CodeExecutionSpec, is_finished
from mcp_exec_api.wire.executions import ExecutionMetadata
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.events.follower import EventFollower, StreamPosition
from mcp_exec_gateway.core.executions.index import ExecutionDeleted, ShuttingDown
from mcp_exec_gateway.core.executions.limits import find_longest_timeout
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features.mcp.abandoned_runs import AbandonedRuns, Departure, may_have_had_effects
from mcp_exec_gateway.features.mcp.calls import ANNOTATION_CALL
from mcp_exec_gateway.features.mcp.code_mode.output import build_content, build_error, build_result, list_run_artifacts
from mcp_exec_gateway.features.mcp.code_mode.progress import ProgressRelay, may_report
from mcp_exec_gateway.features.mcp.code_mode.task_state import TaskHandle, TaskState, relate_to_task
from mcp_exec_gateway.features.mcp.forms import build_approval_form, list_pending
from mcp_exec_gateway.features.mcp.request import McpRequest, fit_client, mark_request
from mcp_exec_gateway.features.mcp.transport.response import ContinueElsewhere, Delivery
from mcp_exec_gateway.features.mcp.transport.tokens import ApprovalToken, ResumePoint

log = logging.getLogger(__name__)

RunOutcome = CallToolResult | InputRequiredResult | TaskHandle
"""What a client gets: the result, a question, or, if it understands tasks and the run takes long, the task."""

_LAST_EVENTS_SECONDS: Final = 2.0
"""Time for the last events of a run to arrive after its status shows the end."""
_RELAY_SECONDS: Final = 2.0
"""Time for the events of a run to be followed before a decision lets it go on."""
_FIRST_RESUMABLE: Final = "2025-11-25"
"""Revision whose clients accept an event without a message, and can resume from it."""
_LONGEST_SECONDS: Final = 3600.0
"""Time that one request of a revision with sessions may last; the client then resumes the run."""


async def build_outcome(request: McpRequest, execution: Object, *, attached: bool = False) -> CallToolResult:
    """Return the result of a finished execution for a client, with its artifacts. See `build_result`."""
    sender = request.sender
    artifacts = list_run_artifacts(sender, execution)
    content = await build_content(sender, execution, artifacts, memory=request.memory) if artifacts else ()
    result = build_result(
        execution,
        artifacts=artifacts,
        content=content,
        attached=attached,
        longest_seconds=find_longest_timeout(
            sender.caller, pools=sender.dependencies.pools, pool=execution["spec"]["poolRef"]["name"]
        ),
        budget=sender.options.budget,
    )
    return fit_client(result, sender.options)


async def may_ask(request: McpRequest) -> bool:
    """Return whether the client's user decides on approvals: the client shows forms, and the caller may approve."""
    can_ask = request.elicitation and (request.is_modern or request.exchange.accepts_events)
    return can_ask and await request.sender.may("approve")


@dataclass(kw_only=True)
class Run:
    """A run of one client's code."""

    request: McpRequest
    elicits: bool
    """Whether the client's user decides on approvals."""
    position: StreamPosition
    asked: dict[str, str]
    """Arguments' digest of each approval that the client was asked for, by id."""
    resumed: bool
    of_task: bool = False
    """Whether the client follows the run as a task of revision 2025-11-25."""
    attached: bool = False
    """Whether the same call began the run before, and its client left without the answer."""
    key: ObjectKey = ("", "")
    """Namespace and name of the execution, once it is known."""
    latest: StreamPosition | None = None
    """Position after the last event that the client was sent."""
    _may_report: bool = field(default=True, init=False)
    """Whether the code may report progress by numbers of its own."""
    _holder: str = field(default="", init=False)
    """Who follows the run, as its annotation says, while this request does."""
    _departure: Departure = field(init=False)
    _answered: bool = field(default=False, init=False)
    _had_effects: bool = field(default=True, init=False)
    """Whether the code could do something twice if it ran again. Nobody knows before its end."""
    _is_followed: bool = field(default=False, init=False)
    _future: "asyncio.Future[Object | None]" = field(init=False)
    _relay: "asyncio.Task[None] | None" = field(default=None, init=False)
    _heartbeat: "asyncio.Task[None] | None" = field(default=None, init=False)
    _relayed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @classmethod
    async def prepare(cls, request: McpRequest, point: ResumePoint | None = None, *, of_task: bool = False) -> Self:
        """Prepare a new run, or one that is followed from a point."""
        run = cls(
            request=request,
            elicits=await may_ask(request),
            position=point.position if point else StreamPosition(),
            asked=dict(point.asked) if point else {},
            resumed=point is not None,
            of_task=of_task,
        )
        run._departure = request.departure
        request.exchange.on_end = run.note_end
        return run

    @asynccontextmanager
    async def starting(
        self, spec: CodeExecutionSpec, *, metadata: ExecutionMetadata, caller: Caller, idempotency_key: str | None
    ) -> AsyncIterator[Object]:
        """Create the execution, or find the one that this call repeats, and follow it within the context."""
        self._may_report = may_report(spec.code)
        sender, session = self.request.sender, self.request.session
        service, abandoned = sender.dependencies.executions, sender.dependencies.get(AbandonedRuns)
        call = abandoned.create_call(
            drop_empty_fields(spec.to_api()),
            caller=caller,
            conversation=metadata.conversation,
            session_id=session.id if session and not self.of_task else None,
        )
        marks = mark_request(self.request)
        if idempotency_key is None and (found := await abandoned.find(call, caller=caller, labels=marks)) is not None:
            self.attached, self._holder = True, found.holder
            async with self.watching(found.key) as execution:
                yield execution
            return
        async with AsyncExitStack() as stack:
            started = await stack.enter_async_context(
                service.starting(
                    spec,
                    metadata=metadata,
                    marks=marks,
                    marks_of_call={ANNOTATION_CALL: str(call)},
                    caller=caller,
                    idempotency_key=idempotency_key,
                    until=self.has_news,
                    note_abandoned=self._note_key,
                )
            )
            del spec
            self._future = started.future
            if not started.is_new:  # a request with the same Idempotency-Key was there before
                self._holder = await abandoned.resume(started.execution, takes=True)
            await self._begin(started.key)
            stack.push_async_callback(self._end_relay)
            yield started.execution

    @asynccontextmanager
    async def watching(self, key: ObjectKey) -> AsyncIterator[Object]:
        """Follow an execution that exists within the context."""
        dependencies = self.request.sender.dependencies
        async with AsyncExitStack() as stack:
            self._future = stack.enter_context(dependencies.index.wait_for(key, self.has_news))
            await self._begin(key)
            stack.push_async_callback(self._end_relay)
            execution = await dependencies.executions.read_any(key)
            if self.resumed:
                broke = self.request.sender.http.method == "GET"
                self._holder = await dependencies.get(AbandonedRuns).resume(execution, takes=broke)
            yield execution

    def has_news(self, execution: Object) -> bool:
        """Return whether an execution has ended, or waits for an approval that the client was not asked for."""
        return is_finished(execution) or (self.elicits and bool(self._list_new(execution)))

    def _list_new(self, execution: Object) -> list[Object]:
        return [
            approval for approval in list_pending(self.request.sender, execution) if approval["id"] not in self.asked
        ]

    def _note_key(self, key: ObjectKey) -> None:
        self.key = key
        self.request.sender.trace_execution(key[1])

    async def _begin(self, key: ObjectKey) -> None:
        self._note_key(key)
        self._is_followed = True
        self.request.sender.dependencies.get(AbandonedRuns).cache.follow(key)
        if self.of_task and not self.resumed:
            return  # the client has the task at once, and nothing before it
        request = self.request
        if not request.is_modern and request.version >= _FIRST_RESUMABLE:
            await request.exchange.send_position(self._format_point(self.position))
        if request.exchange.wants_progress:
            relay = ProgressRelay(
                exchange=request.exchange,
                format_position=self._note_position,
                position=self.position,
                may_report=self._may_report,
                heartbeat_seconds=request.sender.dependencies.settings.mcp_heartbeat_seconds,
            )
            self._relay = asyncio.create_task(self._relay_progress(relay))
            self._heartbeat = asyncio.create_task(relay.beat())

    async def follow(self, execution: Object) -> RunOutcome:
        """Return the outcome, approvals that the run waits for, or its task if it takes long. Raises HttpProblem."""
        try:
            async with asyncio.timeout(self._seconds):
                while not is_finished(execution):
                    if not self.has_news(execution):
                        execution = await self._wait()
                        continue
                    if (question := await self._ask(execution)) is not None:
                        return question
                    execution = await self._watch_again()
                await self._finish_relay()
                return await self._build_result(execution)
        except ExecutionDeleted:
            return build_error(f"execution {self.key[1]} was deleted before it ended")
        except (TimeoutError, ShuttingDown):
            if self.request.tasks:
                return TaskHandle.of(TaskState.read(execution))
            if self.request.is_modern:
                return InputRequiredResult(request_state=self._format_point(self._current_position))
            self._departure = Departure.CONTINUE
            raise ContinueElsewhere from None

    async def _build_result(self, execution: Object) -> CallToolResult:
        result = await build_outcome(self.request, execution, attached=self.attached)
        self._answered, self._had_effects = True, may_have_had_effects(execution)
        return result

    @property
    def _seconds(self) -> float:
        dependencies = self.request.sender.dependencies
        if self.request.tasks:
            return dependencies.settings.mcp_task_after_seconds
        return dependencies.executions.max_wait_seconds if self.request.is_modern else _LONGEST_SECONDS

    async def _wait(self) -> Object:
        """Return the execution at its next news."""
        sender = self.request.sender
        service = sender.dependencies.executions
        with service.metrics.measure_stage("wait"):
            return await self._future or await service.read_any(self.key)

    async def _watch_again(self) -> Object:
        """Return the execution at its next news, with a watch that starts before it is read."""
        sender = self.request.sender
        with sender.dependencies.index.wait_for(self.key, self.has_news) as future:
            execution = await sender.dependencies.executions.read_any(self.key)
            if self.has_news(execution):
                return execution
            self._future = future
            return await self._wait()

    async def _ask(self, execution: Object) -> InputRequiredResult | None:
        """Ask the client for the pending approvals: by the result, or by requests before it."""
        forms: dict[str, ElicitRequest] = {}
        for approval in self._list_new(execution):
            forms[approval["id"]] = build_approval_form(self.key[1], approval)
            self.asked[approval["id"]] = approval.get("argumentsDigest", "")
        if self.request.is_modern:
            requests: dict[str, InputRequest] = dict(forms)
            await self._end_relay()
            return InputRequiredResult(
                input_requests=requests, request_state=self._format_point(self._current_position)
            )
        for approval_id, form in forms.items():
            token = ApprovalToken(execution=self.key[1], approval=approval_id, digest=self.asked[approval_id])
            message = form.model_dump(by_alias=True, mode="json", exclude_none=True)
            if self.of_task:
                message["params"]["_meta"] = relate_to_task(self.key[1])
            await self.request.exchange.send_message({"id": str(token), **message})
        return None

    # progress

    async def wait_for_relay(self) -> None:
        """Wait until the events are followed, if the client wants progress.

        A run that a decision lets go on may end, and its pod with it, before a stream that starts afterwards.
        """
        if self._relay is not None:
            opened = asyncio.ensure_future(self._relayed.wait())
            try:
                await asyncio.wait({opened, self._relay}, timeout=_RELAY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                opened.cancel()

    async def _relay_progress(self, relay: ProgressRelay) -> None:
        sender = self.request.sender
        dependencies, caller = sender.dependencies, sender.caller
        follower = EventFollower(
            key=self.key,
            caller=caller,
            kube=dependencies.kube,
            supervisors=dependencies.supervisors,
            index=dependencies.index,
            memory=dependencies.memory,
            position=self.position,
            resumed=self.resumed,
            opened=self._relayed,
        )
        try:
            with dependencies.streams.hold(caller.name, self.key, limit=caller.limits.max_streams):
                await relay.relay(follower.read_frames())
        except (ApiError, ShuttingDown, HttpProblem) as error:
            # the run and its outcome do not need the stream
            log.info("no more progress of %s/%s: %s %s", *self.key, type(error).__name__, error)
        except Exception:
            log.exception("progress of %s/%s failed", *self.key)

    def _note_position(self, position: StreamPosition) -> str | None:
        self.latest = position
        return None if self.request.is_modern else self._format_point(position)

    @property
    def _current_position(self) -> StreamPosition:
        return self.latest or self.position

    def _format_point(self, position: StreamPosition) -> str:
        exchange = self.request.exchange
        sessions = not self.request.is_modern
        return str(
            ResumePoint(
                execution=self.key[1],
                position=position,
                request_id=exchange.request_id if sessions else None,
                progress_token=exchange.progress_token if sessions else None,
                asked=tuple(self.asked.items()),
            )
        )

    async def _finish_relay(self) -> None:
        if self._relay is not None:
            await asyncio.wait({self._relay}, timeout=_LAST_EVENTS_SECONDS)

    async def _end_relay(self) -> None:
        tasks = [task for task in (self._relay, self._heartbeat) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # the request ends

    async def note_end(self, delivery: Delivery) -> None:
        """Mark the run if its client left without the answer, so that it may ask again.

        In doubt the run stays the answer to the same call only if its repetition could do something twice.
        """
        abandoned = self.request.sender.dependencies.get(AbandonedRuns)
        if not self.key[1]:
            return
        try:
            if delivery is Delivery.MISSED or (delivery is Delivery.IN_DOUBT and self._had_effects):
                await abandoned.leave(self.key, holder=self._holder, departure=self._departure)
            elif self._answered and self.resumed:
                await abandoned.note_delivery(self.key)
        finally:
            if self._is_followed:
                abandoned.cache.unfollow(self.key)
