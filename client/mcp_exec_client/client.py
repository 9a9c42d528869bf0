"""Asynchronous client of a gateway."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, Unpack

from mcp_exec_api.approvals import Approval
from mcp_exec_api.constants import DEFAULT_LANGUAGE, Language
from mcp_exec_api.wire.executions import ApprovalList, ExecutionList, ExecutionSummary, PendingApprovalList
from mcp_exec_api.wire.records import KeyUseList
from mcp_exec_api.wire.stats import NamespaceStats
from mcp_exec_api.wire.tools import CallList, FoundTool, ServerTool, ServerTools, ToolCallRecord
from mcp_exec_api.wire.usage import UsageGrouping, UsageReport
from mcp_exec_api.wire.version import ReleaseVersion
from mcp_exec_client.errors import (
    GatewayUnreachable,
    McpExecError,
    RequestInvalid,
    Unavailable,
    WaitExpired,
    add_execution,
)
from mcp_exec_client.event_stream import follow_events, streamed
from mcp_exec_client.events import StreamedEvent
from mcp_exec_client.options import DEFAULT_WAIT_SECONDS, RunOptions, build_body, default_wait, suggesting
from mcp_exec_client.state.channel import RequestChannel, quote_segment
from mcp_exec_client.state.conversations import Conversations, Records
from mcp_exec_client.state.files import Files
from mcp_exec_client.state.results import drop_unset
from mcp_exec_client.state.sessions import OpenSession, SessionOptions, Sessions
from mcp_exec_client.state.skills import Skills
from mcp_exec_client.state.workspaces import Artifacts, Workspaces
from mcp_exec_client.transport import ClientOptions, HttpReply, build_transport
from mcp_exec_client.types import Execution, FoundTools, parse_reply
from mcp_exec_tools.search.index import DetailLevel

_EXECUTIONS: Final = "/v1/executions"
_MAX_WAIT_SECONDS: Final = 50.0
"""Longest wait of one request: many proxies close a connection that is idle for 60 seconds."""
_MIN_WAIT_SECONDS: Final = 1.0
_FIRST_WAIT_SECONDS: Final = 2.0
"""Longest wait of the request that creates an execution: its response has the name, for errors and cancellation."""
_ABANDON_SECONDS: Final = 5.0
"""Time for the cancellation of an execution whose caller has given up."""
_PAGE_SIZE: Final = 100


@suggesting
class AsyncClient:
    """Client of one gateway, used as `async with AsyncClient(url, api_key=key) as client`.

    All methods raise subclasses of McpExecError. Requests are repeated if that is safe, within `retries`.
    """

    def __init__(self, url: str | None = None, **options: Unpack[ClientOptions]) -> None:
        """Create a client; nothing is sent yet. `url` defaults to $MCP_EXEC_GATEWAY."""
        self.transport: Final = build_transport(url, options)
        self._owns_http = options.get("http") is None
        self.channel: Final = RequestChannel(transport=self.transport, namespace=options.get("namespace"))
        self._max_wait = _MAX_WAIT_SECONDS
        self.sessions: Final = Sessions(self.channel)
        self.workspaces: Final = Workspaces(self.channel)
        self.files: Final = Files(self.channel)
        self.artifacts: Final = Artifacts(self.channel)
        self.skills: Final = Skills(self.channel, self)
        self.records: Final = Records(self.channel)
        self.conversations: Final = Conversations(self.channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        if self._owns_http:
            await self.transport.http.aclose()

    async def run(
        self,
        code: str,
        *,
        wait_seconds: float | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Execution:
        """Run code and return the execution at its end, whatever its outcome.

        The code starts at most once, also if a response is lost: the request carries an Idempotency-Key, which the
        client makes if none is given. The execution is cancelled if the caller is cancelled or `wait_seconds` are
        over, which raises WaitExpired: by default 900, or 600 more than `timeout_seconds`.
        """
        body = build_body(code, options)
        wait_seconds = _check_wait(default_wait(options) if wait_seconds is None else wait_seconds)
        key = idempotency_key or uuid.uuid4().hex
        deadline = _now() + wait_seconds
        try:
            async with self._bound(wait_seconds):
                execution = await self._create(body, key, wait_seconds=min(wait_seconds, _FIRST_WAIT_SECONDS))
                return await self._wait_until(execution.name, deadline, known=execution)
        except (WaitExpired, asyncio.CancelledError) as error:
            is_requested = await self._abandon(body, key, name=getattr(error, "execution", None))
            if isinstance(error, WaitExpired):
                ending = "is requested" if is_requested else "could not be requested, so it may go on"
                error.add_text(f"; its cancellation {ending}")
            raise

    async def submit(
        self, code: str, *, idempotency_key: str | None = None, **options: Unpack[RunOptions]
    ) -> Execution:
        """Create an execution and return it at once. It continues when the caller ends. Creates at most one."""
        return await self._create(build_body(code, options), idempotency_key or uuid.uuid4().hex, wait_seconds=0)

    async def wait(self, name: str, *, wait_seconds: float = DEFAULT_WAIT_SECONDS) -> Execution:
        """Return an execution at its end. Raises WaitExpired; the execution then continues."""
        wait_seconds = _check_wait(wait_seconds)
        try:
            async with self._bound(wait_seconds, name):
                return await self._wait_until(name, _now() + wait_seconds)
        except WaitExpired as error:
            error.add_text("; it goes on")
            raise

    async def get(self, name: str, *, include_code: bool = False) -> Execution:
        """Return an execution as it is now."""
        query = {"include": "code" if include_code else None}
        return self._parse(await self.channel.send("GET", _path(name), query=query))

    async def cancel(self, name: str) -> Execution:
        """Request the cancellation of an execution and return it; it ends shortly after."""
        return self._parse(await self.channel.send("DELETE", _path(name)))

    async def delete(self, name: str) -> bool:
        """Delete an execution that has ended, with its artifacts. Raises Conflict if it has not ended.

        Returns whether it is gone. If not, the operator deletes it once its record is stored.
        """
        return (await self.channel.send("DELETE", _path(name), query={"purge": "true"})).status == 204

    def session(
        self,
        name: str | None = None,
        *,
        user: str | None = None,
        keep: bool | None = None,
        **options: Unpack[SessionOptions],
    ) -> OpenSession:
        """Return one session, for `async with client.session("analysis") as session`.

        With options, the block creates it with these, unless it exists. It stays at the end of the block unless `keep`
        is false; without a name, it gets one and is deleted unless `keep` is true.
        """
        return OpenSession(self, self.sessions, name, user=user, options=options, keep=keep)

    @streamed
    def list(
        self,
        *,
        phase: str | None = None,
        caller: str | None = None,
        conversation: str | None = None,
        use_case: str | None = None,
        label_selector: str | None = None,
        limit: int = 1000,
    ) -> AsyncGenerator[ExecutionSummary, None]:
        """Yield executions, newest first, at most `limit`. Pages are requested as they are needed."""
        query = {"phase": phase, "caller": caller, "conversation": conversation}
        query |= {"useCase": use_case, "labelSelector": label_selector}
        query["limit"] = _fit_page(limit)
        return self.channel.list_items(
            ExecutionList,
            _EXECUTIONS,
            query=query,
            cursor="continue",
            find_next=lambda page: page.continue_token,
            limit=limit,
        )

    @streamed
    def stream(self, name: str, *, last_event_id: str | None = None) -> AsyncGenerator[StreamedEvent, None]:
        """Yield an execution's events from its start, or after `last_event_id`, up to its end.

        A lost connection is opened again after the last event, so that each event comes once.
        """
        path = f"{_path(name)}/events"
        return follow_events(
            self.transport, path, query=self.channel.query(), last_event_id=last_event_id, execution=name
        )

    async def approvals(self, name: str) -> Sequence[Approval]:
        """Return an execution's approvals, oldest first."""
        return (await self.channel.fetch(ApprovalList, "GET", f"{_path(name)}/approvals")).items

    async def pending_approvals(self, *, limit: int = 100) -> PendingApprovalList:
        """Return the approvals that executions of the namespace wait for."""
        return await self.channel.fetch(PendingApprovalList, "GET", "/v1/approvals", query={"limit": str(limit)})

    async def approve(
        self, name: str, approval_id: str, *, comment: str | None = None, arguments_digest: str | None = None
    ) -> Approval:
        """Approve a pending tool call. With `arguments_digest`, only if the call has these arguments."""
        return await self._decide(name, approval_id, "Approve", comment, arguments_digest)

    async def deny(
        self, name: str, approval_id: str, *, comment: str | None = None, arguments_digest: str | None = None
    ) -> Approval:
        """Deny a pending tool call. The code receives the comment with the error."""
        return await self._decide(name, approval_id, "Deny", comment, arguments_digest)

    async def search_tools(
        self,
        query: str = "",
        *,
        detail_level: DetailLevel = "with_description",
        limit: int = 10,
        language: Language = DEFAULT_LANGUAGE,
    ) -> Sequence[FoundTool]:
        """Return tools that code in a language may call, best match first. An empty query lists all tools."""
        params: dict[str, str | None] = {"query": query, "detail_level": detail_level, "limit": str(limit)}
        params |= {"language": language} if language != DEFAULT_LANGUAGE else {}
        return (await self.channel.fetch(FoundTools, "GET", "/api/v1/mcp/tools/search", query=params)).root

    async def tools(self, server: str) -> Sequence[ServerTool]:
        """Return the tools of a server as it lists them, with their schemas."""
        path = f"/api/v1/mcp/servers/{quote_segment(server)}/tools"
        return (await self.channel.fetch(ServerTools, "GET", path)).tools

    async def stats(self) -> NamespaceStats:
        """Return what the caller can use in the namespace, and what is in use."""
        return await self.channel.fetch(NamespaceStats, "GET", "/v1/stats")

    async def version(self) -> ReleaseVersion:
        """Return the gateway's version, and the API versions and revisions of MCP that it speaks."""
        return await self.channel.fetch(ReleaseVersion, "GET", "/v1/version")

    async def usage(
        self, *, by: UsageGrouping = "use-case", since: datetime | None = None, until: datetime | None = None
    ) -> UsageReport:
        """Return what models, sandboxes and tools used in the last 30 days or a given time, by group, with its cost.

        Raises GatewayError if there are no records.
        """
        begin, end = (None if at is None else at.isoformat() for at in (since, until))
        return await self.channel.fetch(UsageReport, "GET", "/v1/usage", query={"by": by, "since": begin, "until": end})

    async def key_uses(self) -> KeyUseList:
        """Return the hour of the last use of each API key of the namespace.

        Raises GatewayError if there are no records.
        """
        return await self.channel.fetch(KeyUseList, "GET", "/v1/key-uses")

    @streamed
    def audit(
        self, *, execution: str | None = None, tool: str | None = None, outcome: str | None = None, limit: int = 1000
    ) -> AsyncGenerator[ToolCallRecord, None]:
        """Yield audit records of tool calls, newest first, at most `limit`."""
        query = {"execution": execution, "tool": tool, "outcome": outcome, "limit": _fit_page(limit)}
        return self.channel.list_items(
            CallList, "/v1/audit", query=query, cursor="cursor", find_next=lambda page: page.next, limit=limit
        )

    @asynccontextmanager
    async def _bound(self, wait_seconds: float, name: str | None = None) -> AsyncIterator[None]:
        """Raise WaitExpired if a wait and its last response take too long, for example because of retries."""
        seconds = wait_seconds + self.transport.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            what = f"execution {name} has not" if name else "no execution has"
            expired = WaitExpired(f"{self.transport.url}: {what} ended within {seconds:g} seconds")
            expired.execution = name
            raise expired from error

    async def _create(self, body: Mapping[str, Any], key: str, *, wait_seconds: float) -> Execution:
        # a lost connection must not cancel the execution: the next attempt finds it by its key
        try:
            reply = await self._request_waiting(
                "POST",
                _EXECUTIONS,
                wait_seconds=wait_seconds,
                body=body,
                headers={"Idempotency-Key": key},
                query={"onDisconnect": "continue"},
            )
        except (GatewayUnreachable, Unavailable) as error:
            if error.may_have_arrived and error.execution is None:
                error.add_text(f"; the code may run: the same call with idempotency_key={key!r} returns its execution")
            raise
        return self._parse(reply)

    async def _wait_until(self, name: str, deadline: float, *, known: Execution | None = None) -> Execution:
        """Return the execution at its end. `known` is its last state, from less than a wait ago."""
        execution = known
        while execution is None or not execution.finished:
            left = deadline - _now()
            if execution is not None and left <= 0:
                text = f"execution {name} has not ended in time: {execution.phase} {execution.reason}"
                error = WaitExpired(text.rstrip())
                error.execution = name
                raise error
            try:
                reply = await self._request_waiting("GET", _path(name), wait_seconds=max(left, 0.0))
                execution = self._parse(reply)
            except McpExecError as error:
                add_execution(error, name)
                raise
        return execution

    async def _request_waiting(
        self, method: str, path: str, *, wait_seconds: float, query: Mapping[str, str] | None = None, **request: Any
    ) -> Any:
        """Send a request with a wait. The gateway may accept less than the client assumes."""
        while True:
            wait = min(wait_seconds, self._max_wait)
            params = self.channel.query(**(query or {}), wait=f"{wait:.3f}")
            try:
                return await self.transport.request(method, path, query=params, wait_seconds=wait, **request)
            except RequestInvalid as error:
                if wait <= _MIN_WAIT_SECONDS or [each.field for each in error.errors] != ["wait"]:
                    raise
                self._max_wait = max(wait / 2, _MIN_WAIT_SECONDS)

    async def _abandon(self, body: Mapping[str, Any], key: str, *, name: str | None = None) -> bool:
        """Cancel an execution whose caller has given up, as well as that is possible in a few seconds.

        Without its name, the request is sent again: it has the same key, so the response names the execution. Returns
        whether the gateway has the cancellation.
        """
        with suppress(McpExecError, TimeoutError):
            async with asyncio.timeout(_ABANDON_SECONDS):
                name = name or (await self._create(body, key, wait_seconds=0)).name
                await self.cancel(name)
                return True
        return False

    async def _decide(
        self, name: str, approval_id: str, decision: str, comment: str | None, arguments_digest: str | None
    ) -> Approval:
        body = {"decision": decision, "comment": comment, "argumentsDigest": arguments_digest}
        path = f"{_path(name)}/approvals/{quote_segment(approval_id)}"
        return await self.channel.fetch(Approval, "POST", path, body=drop_unset(body), repeatable=False)

    def _parse(self, reply: HttpReply) -> Execution:
        execution = parse_reply(Execution, reply)
        self.artifacts.attach(execution.name, execution.artifacts)
        return execution


def _path(name: str) -> str:
    return f"{_EXECUTIONS}/{quote_segment(name)}"


def _check_wait(wait_seconds: float) -> float:
    """Return the seconds of a wait. Raises ValueError if no wait can have them."""
    if not wait_seconds >= 0:  # also not for NaN
        raise ValueError(f"wait_seconds is a number of seconds, 0 or more, and not {wait_seconds}")
    return wait_seconds


def _fit_page(limit: int) -> str:
    """Return the items of a list's page. Raises ValueError if the list can have none."""
    if not limit >= 1:
        raise ValueError(f"limit is the most items in all, 1 or more, and not {limit}")
    return str(min(limit, _PAGE_SIZE))


def _now() -> float:
    return asyncio.get_running_loop().time()
