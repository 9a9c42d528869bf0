"""Executions: create, get, list, cancel."""

from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_api.execution_state import is_finished
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.auth.authenticator import Caller
from mcp_exec_gateway.auth.caller import caller_who_may
from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.executions.code_check import check_code
from mcp_exec_gateway.executions.naming import is_object_name
from mcp_exec_gateway.executions.submission import fitted_spec
from mcp_exec_gateway.executions.views import execution_view, json_response, summary_view
from mcp_exec_gateway.executions.wait import outcome
from mcp_exec_gateway.http.access_log import trace_of
from mcp_exec_gateway.http.problems import Problem, invalid_field, not_found, unavailable
from mcp_exec_gateway.http.query_params import (
    CreateQuery,
    GetQuery,
    ListQuery,
    Query,
    parse_idempotency_key,
    parse_query,
)
from mcp_exec_gateway.http.request_body import ClientGone, parse_spec, read_body
from mcp_exec_gateway.openapi import document as openapi

_NAMES: Final = 5
"""Names that are tried where others have taken them."""
_PAGES: Final = 10
"""Pages that one request looks through for a phase before it answers with an empty one."""

Name = Annotated[str, Path(description="The execution's name.")]


@dataclass(frozen=True, kw_only=True)
class Service:
    """What the routes do."""

    dependencies: Dependencies

    async def create(
        self, request: Request, *, caller: Caller, query: CreateQuery, idempotency_key: str | None
    ) -> Response:
        """Creates an execution and waits for its end."""
        d = self.dependencies
        self.check_wait(query.wait)
        body = await read_body(request, limit=d.settings.max_body_bytes)
        spec = fitted_spec(parse_spec(body), caller=caller, pools=d.pools)
        await check_code(spec, namespace=caller.namespace, pools=d.pools, metrics=d.metrics)
        for _ in range(_NAMES):
            answer = await self._create_once(request, spec, caller=caller, query=query, idempotency_key=idempotency_key)
            if answer is not None:
                return answer
        raise unavailable("no free name was found")

    async def _create_once(
        self,
        request: Request,
        spec: CodeExecutionSpec,
        *,
        caller: Caller,
        query: CreateQuery,
        idempotency_key: str | None,
    ) -> Response | None:
        d = self.dependencies
        submission = d.submitter.prepare(spec, caller=caller, idempotency_key=idempotency_key)
        key = submission.key
        trace_of(request.scope).execution = key[1]
        try:
            # the wait stands before the execution does, so that no event is lost between the two
            with d.executions.until(key, is_finished) as ending:
                with d.metrics.stage("create"):
                    found = await d.submitter.submit(submission, caller=caller)
                if found is None:
                    return None
                ended: Object | None = found if is_finished(found) else None
                if ended is None and query.wait > 0:
                    with d.metrics.stage("wait"):
                        ended = await outcome(ending, name=key[1], receive=request.receive, seconds=query.wait)
                    found = ended or await self.find(key)
        except ClientGone:
            # another request may wait for the same execution by the same Idempotency-Key
            if query.on_disconnect == "cancel" and not d.executions.waits_for(key):
                await self._request_cancel(key)
            raise
        return json_response(
            execution_view(found), status=200 if is_finished(found) else 202, headers=_location(key, query.namespace)
        )

    async def get(self, request: Request, key: ObjectKey, *, query: GetQuery) -> Response:
        """One execution, waited for where that is asked."""
        self.check_wait(query.wait)
        with self.dependencies.executions.until(key, is_finished) as ending:
            found = await self.find(key)
            if query.wait > 0 and not is_finished(found):
                with self.dependencies.metrics.stage("wait"):
                    ended = await outcome(ending, name=key[1], receive=request.receive, seconds=query.wait)
                found = ended or await self.find(key)
        return json_response(execution_view(found))

    async def list(self, *, caller: Caller, query: ListQuery) -> Response:
        """One page of executions."""
        token = query.continue_token
        for _ in range(_PAGES):
            page = await self._page(caller.namespace, query, token)
            token = page["metadata"].get("continue") or None
            items = [summary_view(item) for item in page.get("items") or []]
            picked = [item for item in items if query.phase in (None, item["phase"])]
            if picked or token is None:
                break
        return json_response({"items": picked, **({"continue": token} if token else {})})

    async def _page(self, namespace: str, query: ListQuery, token: str | None) -> Object:
        params = {"limit": str(query.limit)}
        if query.label_selector:
            params["labelSelector"] = query.label_selector
        if token:
            params["continue"] = token
        try:
            return await self.dependencies.kube.get(custom_resource_path(EXECUTIONS, namespace=namespace), **params)
        except ApiError as error:
            if error.code == 410:
                raise Problem("expired", 410, "the `continue` is too old: list from the start") from error
            if error.code == 400:
                raise invalid_field(
                    "continue" if "continue" in error.message else "labelSelector", error.message
                ) from error
            raise

    async def cancel(self, key: ObjectKey) -> Response:
        """Asks for an execution's end."""
        found = await self.find(key)
        if is_finished(found):
            return json_response(execution_view(found))
        asked = await self._request_cancel(key)
        if asked is None:
            raise not_found(*key)
        return json_response(execution_view(asked), status=202)

    async def find(self, key: ObjectKey) -> Object:
        """The execution as it is now. Raises Problem where there is none."""
        if not is_object_name(key[1]):
            raise not_found(*key)
        try:
            return await self.dependencies.kube.get(custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1]))
        except ApiError as error:
            if error.code == 404:
                raise not_found(*key) from error
            raise

    async def _request_cancel(self, key: ObjectKey) -> Object | None:
        path = custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1])
        try:
            return await self.dependencies.kube.patch(path, {"spec": {"cancelRequested": True}})
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def check_wait(self, seconds: float) -> None:
        """Raises Problem where a wait is longer than any may be."""
        if seconds > (most := self.dependencies.settings.max_wait_seconds):
            raise invalid_field("wait", f"at most {most:g} seconds are allowed")


def _location(key: ObjectKey, namespace: str | None) -> dict[str, str]:
    suffix = f"?namespace={quote(namespace)}" if namespace else ""
    return {"Location": f"/v1/executions/{key[1]}{suffix}"}


def router(*, dependencies: Dependencies) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/v1/executions", tags=["executions"])
    service = Service(dependencies=dependencies)
    may_create = caller_who_may("create", dependencies=dependencies)
    may_get = caller_who_may("get", dependencies=dependencies)
    may_list = caller_who_may("list", dependencies=dependencies)
    may_patch = caller_who_may("patch", dependencies=dependencies)

    def key_of_request(request: Request, caller: Caller, name: str) -> ObjectKey:
        trace_of(request.scope).execution = name if is_object_name(name) else None
        return caller.namespace, name

    @routes.post("", **openapi.CREATE)
    async def create_execution(request: Request) -> Response:
        caller = await may_create(request)
        query, idempotency_key = parse_query(CreateQuery, request), parse_idempotency_key(request)
        return await service.create(request, caller=caller, query=query, idempotency_key=idempotency_key)

    @routes.get("", **openapi.LIST)
    async def list_executions(request: Request) -> Response:
        caller = await may_list(request)
        return await service.list(caller=caller, query=parse_query(ListQuery, request))

    @routes.get("/{name}", **openapi.GET)
    async def get_execution(request: Request, name: Name) -> Response:
        caller = await may_get(request)
        query = parse_query(GetQuery, request)
        return await service.get(request, key_of_request(request, caller, name), query=query)

    @routes.delete("/{name}", **openapi.CANCEL)
    async def cancel_execution(request: Request, name: Name) -> Response:
        caller = await may_patch(request)
        parse_query(Query, request)
        return await service.cancel(key_of_request(request, caller, name))

    return routes
