"""Operations on executions: create, get, list, cancel."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_api.execution_state import is_finished
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.pages import TablePage
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.auth.authenticator import Caller
from mcp_exec_gateway.executions.code_check import check_code
from mcp_exec_gateway.executions.index import ExecutionIndex
from mcp_exec_gateway.executions.naming import is_object_name
from mcp_exec_gateway.executions.pools import PoolCache
from mcp_exec_gateway.executions.spec_limits import fit_spec
from mcp_exec_gateway.executions.submission import Submitter
from mcp_exec_gateway.executions.views import build_summary
from mcp_exec_gateway.executions.wait import wait_for_end
from mcp_exec_gateway.http.access_log import get_trace
from mcp_exec_gateway.http.memory import Reservation
from mcp_exec_gateway.http.problems import HttpProblem, invalid_field, not_found, unavailable
from mcp_exec_gateway.http.query_params import CreateQuery, ListQuery
from mcp_exec_gateway.http.request_body import ClientDisconnected
from mcp_exec_gateway.http.slots import RequestSlots
from mcp_exec_gateway.metrics import Metrics

_MAX_NAMES: Final = 5
"""Names tried if other replicas have taken them."""
_MAX_PAGES: Final = 10
"""Pages searched for a phase before one request returns an empty page."""


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

    async def create(
        self,
        request: Request,
        spec: CodeExecutionSpec,
        *,
        caller: Caller,
        query: CreateQuery,
        idempotency_key: str | None,
        memory: Reservation,
    ) -> Object:
        """Create an execution and return it as it is at its end, or when the wait ends.

        The wait may take minutes. It keeps neither code nor context, and releases their `memory`.
        """
        spec = fit_spec(spec, caller=caller, pools=self.pools)
        with self._hold_wait(caller, query.wait):
            await check_code(spec, namespace=caller.namespace, pools=self.pools, metrics=self.metrics)
            for _ in range(_MAX_NAMES):
                submission = self.submitter.build_submission(spec, caller=caller, idempotency_key=idempotency_key)
                key = submission.key
                get_trace(request.scope).execution = key[1]
                # the wait starts before the creation, so that no event between the two is lost
                async with self._cancelling_at_disconnect(key, query):
                    with self.index.wait_for(key, is_finished) as ending:
                        with self.metrics.measure_stage("create"):
                            execution = await self.submitter.submit(submission, caller=caller)
                        if execution is None:
                            continue
                        if is_finished(execution) or query.wait <= 0:
                            return execution
                        del spec, submission, execution
                        memory.release()
                        return await self._wait(request, ending, key, seconds=query.wait)
        raise unavailable(f"{_MAX_NAMES} names in a row were taken")

    async def get(self, request: Request, name: str, *, caller: Caller, wait_seconds: float) -> Object:
        """Return one execution, at its end if that comes within the wait."""
        key = (caller.namespace, name)
        _trace(request, key)
        with self._hold_wait(caller, wait_seconds), self.index.wait_for(key, is_finished) as ending:
            execution = await self.find(key)
            if wait_seconds <= 0 or is_finished(execution):
                return execution
            del execution
            return await self._wait(request, ending, key, seconds=wait_seconds)

    async def _wait(
        self, request: Request, ending: "asyncio.Future[Object | None]", key: ObjectKey, *, seconds: float
    ) -> Object:
        with self.metrics.measure_stage("wait"):
            ended = await wait_for_end(ending, name=key[1], receive=request.receive, seconds=seconds)
        return ended or await self.find(key)

    async def list_page(self, namespace: str, query: ListQuery) -> Object:
        """Return one page: `items`, and `continue` if there are more."""
        token = query.continue_token
        for _ in range(_MAX_PAGES):
            page = await self._fetch_page(namespace, query, token)
            token = page.token
            summaries = [build_summary(row, attestor=self.submitter.attestor) for row in page.rows]
            matches = [summary for summary in summaries if query.phase in (None, summary["phase"])]
            if matches or token is None:
                break
        return {"items": matches, **({"continue": token} if token else {})}

    async def _fetch_page(self, namespace: str, query: ListQuery, token: str | None) -> TablePage:
        path = custom_resource_path(EXECUTIONS, namespace=namespace)
        try:
            return await self.kube.get_table(path, limit=query.limit, token=token, selector=query.label_selector or "")
        except ApiError as error:
            if error.code == 410:
                detail = "the `continue` has expired; list again from the start"
                raise HttpProblem("expired", 410, detail) from error
            if error.code == 400:
                field = "continue" if "continue" in error.message else "labelSelector"
                raise invalid_field(field, error.message) from error
            raise

    async def cancel(self, request: Request, key: ObjectKey) -> Object:
        """Request the cancellation of an execution, unless it has ended, and return it."""
        _trace(request, key)
        execution = await self.find(key)
        if is_finished(execution):
            return execution
        requested = await self._request_cancellation(key)
        if requested is None:
            raise not_found(*key)
        return requested

    async def find(self, key: ObjectKey) -> Object:
        """Return the execution as it is now. Raises HttpProblem, a 404, if it does not exist."""
        if not is_object_name(key[1]):
            raise not_found(*key)
        try:
            return await self.kube.get(custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1]))
        except ApiError as error:
            if error.code == 404:
                raise not_found(*key) from error
            raise

    @asynccontextmanager
    async def _cancelling_at_disconnect(self, key: ObjectKey, query: CreateQuery) -> AsyncIterator[None]:
        try:
            yield
        except ClientDisconnected:
            # a retry with the same Idempotency-Key may wait for the same execution
            if query.on_disconnect == "cancel" and not self.index.has_waits(key):
                await self._request_cancellation(key)
            raise

    async def _request_cancellation(self, key: ObjectKey) -> Object | None:
        path = custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1])
        try:
            return await self.kube.patch(path, {"spec": {"cancelRequested": True}})
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _hold_wait(self, caller: Caller, seconds: float) -> AbstractContextManager[None]:
        return self.wait_slots.hold(caller.name, limit=caller.limits.max_waits) if seconds > 0 else nullcontext()

    def check_wait(self, seconds: float) -> None:
        """Raise HttpProblem if a wait is longer than the gateway allows."""
        if seconds > self.max_wait_seconds:
            raise invalid_field("wait", f"at most {self.max_wait_seconds:g} seconds are allowed")


def _trace(request: Request, key: ObjectKey) -> None:
    if is_object_name(key[1]):
        get_trace(request.scope).execution = key[1]
