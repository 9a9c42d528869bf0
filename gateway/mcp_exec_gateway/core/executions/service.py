"""Operations on executions: create, get, list, cancel."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from starlette.requests import Request
from starlette.types import Receive

from mcp_exec_api.code_execution import CodeExecutionSpec, is_finished
from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_api.wire.executions import ExecutionMetadata, NewExecution
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.core.auth.callers import Caller, find_owner, may_see
from mcp_exec_gateway.core.executions.index import ExecutionDeleted, ExecutionIndex, Predicate, ShuttingDown
from mcp_exec_gateway.core.executions.limits import ReadLimiter, fit_spec
from mcp_exec_gateway.core.executions.lists import ExecutionFilter, decode_position, encode_position
from mcp_exec_gateway.core.executions.parameters import CreateQuery, ListQuery
from mcp_exec_gateway.core.executions.submission import Submission, Submitter, check_code, is_object_name
from mcp_exec_gateway.core.executions.views import build_summary
from mcp_exec_gateway.core.extensions import Admission
from mcp_exec_gateway.core.http.access_log import get_trace
from mcp_exec_gateway.core.http.limits import RequestSlots, Reservation
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field, not_found, unavailable
from mcp_exec_gateway.core.http.request_body import ClientDisconnected, wait_for_disconnect
from mcp_exec_gateway.core.pools import PoolCache
from mcp_exec_gateway.metrics import Metrics


def may_see_execution(execution: Object, *, caller: Caller, attestor: Attestor) -> bool:
    """Return whether a caller may see an execution, by the proof of who created it."""
    if not caller.limits.sees_own_only:
        return True
    user = (execution.get("spec") or {}).get("user")
    return may_see(caller, creator=attestor.read_caller(execution), user=user)


def check_access(execution: Object, *, caller: Caller, attestor: Attestor) -> Object:
    """Return the execution if the caller may see it. Raises HttpProblem, the 404 of one that does not exist."""
    if may_see_execution(execution, caller=caller, attestor=attestor):
        return execution
    raise not_found(execution["metadata"]["namespace"], execution["metadata"]["name"])


async def wait_for_end(
    future: asyncio.Future[Object | None], *, name: str, receive: Receive, seconds: float
) -> Object | None:
    """Return the execution of the future, or None if it has to be read: after a time-out, or if memory is short.

    Raises ClientDisconnected if the client disconnects first, and HttpProblem if the execution is deleted.
    """
    disconnect = asyncio.create_task(wait_for_disconnect(receive))
    either: set[asyncio.Future[Any]] = {future, disconnect}
    try:
        done, _ = await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        disconnect.cancel()
    try:
        if future in done:
            return future.result()
    except ExecutionDeleted:
        raise HttpProblem("deleted", 410, f"execution {name} was deleted before it ended", execution=name) from None
    except ShuttingDown:
        return None
    if disconnect in done:
        raise ClientDisconnected
    return None


_MAX_NAMES: Final = 5
"""Names tried if other replicas have taken them."""


@dataclass(kw_only=True)
class StartedExecution:
    """An execution that was created, and a watch on it."""

    key: ObjectKey
    execution: Object
    """The execution as it was created, or as it is if a request with the same Idempotency-Key created it."""
    is_new: bool
    """Whether this request created it."""
    future: "asyncio.Future[Object | None]"
    """The first state that satisfies the predicate: see ExecutionIndex.wait_for."""


@dataclass(frozen=True, kw_only=True)
class ExecutionService:
    """Executions as the API server has them."""

    kube: KubeClient
    index: ExecutionIndex
    pools: PoolCache
    submitter: Submitter
    metrics: Metrics
    max_wait_seconds: float
    wait_slots: RequestSlots
    """Requests that wait, by caller."""
    admissions: Sequence[Admission] = ()
    """What features check of a new execution."""
    reads: ReadLimiter = field(default_factory=ReadLimiter)
    """Rate of reads from the API server, by caller."""

    async def create(
        self,
        request: Request,
        new: NewExecution,
        *,
        caller: Caller,
        query: CreateQuery,
        idempotency_key: str | None,
        memory: Reservation,
    ) -> Object:
        """Create an execution and return it as it is at its end, or when the wait ends.

        The wait may take minutes. It keeps neither code nor context, and releases their `memory`.
        """
        metadata = new.read_metadata()
        with self.hold_wait(caller, query.wait):
            spec = await self.check(new.read_spec(), caller=caller)
            del new
            try:
                async with self.starting(
                    spec,
                    metadata=metadata,
                    caller=caller,
                    idempotency_key=idempotency_key,
                    until=is_finished,
                    note_name=partial(_trace, request),
                ) as started:
                    if is_finished(started.execution) or query.wait <= 0:
                        return started.execution
                    del spec, started.execution
                    memory.release()
                    return await self._wait(request, started.future, started.key, caller=caller, seconds=query.wait)
            except ClientDisconnected:
                # a retry with the same Idempotency-Key may wait for the same execution
                if query.on_disconnect == "cancel" and not self.index.has_waits(started.key):
                    await self.request_cancellation(started.key)
                raise

    async def check(self, spec: CodeExecutionSpec, *, caller: Caller) -> CodeExecutionSpec:
        """Return the spec within the limits of caller and pool. Raises HttpProblem: 403, 413, 422, 429."""
        spec = fit_spec(spec, caller=caller, pools=self.pools)
        await check_code(spec, namespace=caller.namespace, pools=self.pools, metrics=self.metrics)
        owner = find_owner(caller, spec.user)
        for admit in self.admissions:
            await admit(spec, owner=owner, caller=caller)
        return spec

    @asynccontextmanager
    async def starting(
        self,
        spec: CodeExecutionSpec,
        *,
        metadata: ExecutionMetadata,
        caller: Caller,
        idempotency_key: str | None,
        until: Predicate,
        marks: Mapping[str, str] = MappingProxyType({}),
        marks_of_call: Mapping[str, str] = MappingProxyType({}),
        note_name: Callable[[ObjectKey], None] = lambda key: None,
        note_abandoned: Callable[[ObjectKey], None] | None = None,
    ) -> AsyncIterator[StartedExecution]:
        """Create an execution of a checked spec, and watch it until the predicate holds or the context ends.

        `marks` are labels and `marks_of_call` annotations of the gateway's own. `note_name` is called with each name
        before it is tried. With `note_abandoned`, a creation goes on to its end if the request is cancelled meanwhile,
        and the function is called with the key of the execution that it made.
        """
        for _ in range(_MAX_NAMES):
            submission = self.submitter.build_submission(
                spec,
                metadata=metadata,
                marks=marks,
                marks_of_call=marks_of_call,
                caller=caller,
                idempotency_key=idempotency_key,
            )
            note_name(submission.key)
            # the wait starts before the creation, so that no event between the two is lost
            with self.index.wait_for(submission.key, until) as future:
                with self.metrics.measure_stage("create"):
                    execution = await self._submit(submission, caller, note_abandoned)
                if execution is not None:
                    is_new = submission.created(execution)
                    started = StartedExecution(key=submission.key, execution=execution, is_new=is_new, future=future)
                    del spec, submission, execution  # the context lasts for minutes, and needs neither code nor input
                    yield started
                    return
        raise unavailable(f"{_MAX_NAMES} names in a row were taken")

    async def _submit(
        self, submission: Submission, caller: Caller, note_abandoned: Callable[[ObjectKey], None] | None
    ) -> Object | None:
        if note_abandoned is None:
            return await self.submitter.submit(submission, caller=caller)
        creating = asyncio.ensure_future(self.submitter.submit(submission, caller=caller))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            await asyncio.wait({creating})
            # without a result, the name is that of another's execution
            if not creating.cancelled() and not creating.exception() and creating.result() is not None:
                note_abandoned(submission.key)
            raise

    async def get(self, request: Request, name: str, *, caller: Caller, wait_seconds: float) -> Object:
        """Return one execution, at its end if that comes within the wait."""
        key = (caller.namespace, name)
        _trace(request, key)
        with self.hold_wait(caller, wait_seconds), self.index.wait_for(key, is_finished) as ending:
            execution = await self.find(name, caller=caller)
            if wait_seconds <= 0 or is_finished(execution):
                return execution
            del execution
            return await self._wait(request, ending, key, caller=caller, seconds=wait_seconds)

    async def _wait(
        self,
        request: Request,
        ending: "asyncio.Future[Object | None]",
        key: ObjectKey,
        *,
        caller: Caller,
        seconds: float,
    ) -> Object:
        with self.metrics.measure_stage("wait"):
            ended = await wait_for_end(ending, name=key[1], receive=request.receive, seconds=seconds)
        return check_access(ended or await self.read_any(key), caller=caller, attestor=self.index.attestor)

    async def list_page(self, query: ListQuery, *, caller: Caller) -> Object:
        """Return one page of what the caller may see, newest first: `items`, and `continue` if there are more."""
        try:
            before = decode_position(query.continue_token) if query.continue_token else None
        except ValueError as error:
            raise invalid_field("continue", str(error)) from error
        chosen = ExecutionFilter.from_query(query, viewer=caller)
        entries, last = await self.index.lists.find_page(
            caller.namespace, chosen.matches, limit=query.limit, before=before
        )
        items = [build_summary(entry, namespace=caller.namespace) for entry in entries]
        return {"items": items, **({"continue": encode_position(last)} if last else {})}

    async def cancel(self, request: Request, name: str, *, caller: Caller) -> Object:
        """Request the cancellation of an execution, unless it has ended, and return it."""
        key = (caller.namespace, name)
        _trace(request, key)
        execution = await self.find(name, caller=caller)
        if is_finished(execution):
            return execution
        requested = await self.request_cancellation(key)
        if requested is None:
            raise not_found(*key)
        return requested

    async def find(self, name: str, *, caller: Caller) -> Object:
        """Return an execution of the caller's namespace as it is now.

        Raises HttpProblem: 404 if it does not exist or the caller may not see it, 429 if the caller reads too much.
        """
        self.reads.take(caller, self.index.stored.find_bytes((caller.namespace, name)))
        execution = await self.read_any((caller.namespace, name))
        return check_access(execution, caller=caller, attestor=self.index.attestor)

    async def read_any(self, key: ObjectKey) -> Object:
        """Return the execution as it is now, whoever created it. Raises HttpProblem, a 404, if it does not exist."""
        found = None
        if is_object_name(key[1]):
            found = await self.kube.find(custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1]))
        if found is None:
            raise not_found(*key)
        return found

    async def request_cancellation(self, key: ObjectKey) -> Object | None:
        """Request the cancellation of an execution and return it, or None if it does not exist."""
        path = custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1])
        try:
            return await self.kube.patch(path, {"spec": {"cancelRequested": True}})
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def hold_wait(self, caller: Caller, seconds: float) -> AbstractContextManager[None]:
        """Hold one of the caller's slots for requests that wait. Raises HttpProblem if none is free."""
        return self.wait_slots.hold(caller.name, limit=caller.limits.max_waits) if seconds > 0 else nullcontext()

    def check_wait(self, seconds: float) -> None:
        """Raise HttpProblem if a wait is longer than the gateway allows."""
        if seconds > self.max_wait_seconds:
            raise invalid_field("wait", f"at most {self.max_wait_seconds:g} seconds are allowed")


def _trace(request: Request, key: ObjectKey) -> None:
    if is_object_name(key[1]):
        get_trace(request.scope).execution = key[1]
