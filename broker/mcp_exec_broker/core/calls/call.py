"""The state of one tool call, and the threads for the work on large ones."""

import asyncio
import logging
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from mcp_exec_api.approvals import Approval
from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_broker.core.access.policy import PolicyDecision
from mcp_exec_broker.core.access.quotas import CallerQuota, ExecutionQuota
from mcp_exec_broker.core.calls.scanner import AccountScanner
from mcp_exec_broker.core.catalog.entry import ToolListing
from mcp_exec_broker.core.errors import ErrorReason, build_denial, build_unaudited_error
from mcp_exec_broker.core.memory import FlightLease
from mcp_exec_broker.core.upstream.servers import ToolServer
from mcp_exec_broker.core.upstream.session import UpstreamSession
from mcp_exec_common.broker.grants import CallRights
from mcp_exec_tools.catalog import Tool

log = logging.getLogger(__name__)

_MAX_NAME: Final = 300

ApprovalNotifier = Callable[[Approval], Awaitable[None]]
"""Reports a pending approval to the sandbox."""
Result = TypeVar("Result")
INLINE_BYTES: Final = 4 * 1024
"""Maximum bytes of a body whose work is done on the loop: the change of threads mostly takes longer."""
SWITCH_SECONDS: Final = 0.001
"""How long the loop waits for the interpreter while a thread works; Python's own value is 0.005."""
_WORKERS: Final = 2


@dataclass(frozen=True, kw_only=True)
class CallRequest:
    """The request of a sandbox, or of the gateway for a direct call."""

    id: str
    """The sender's id of the call."""
    tool: str
    """Server and tool in any accepted spelling."""
    arguments: dict[str, Any]
    size: int
    """Bytes of the request's body."""
    timeout_seconds: float | None = None
    load: "Callable[[], Awaitable[CallRequest]] | None" = None
    """Reads the rest of a large request, whose arguments are unknown until then. It may raise ToolCallError."""
    lease: FlightLease
    """The memory of the request, and of what the server answers."""


@dataclass(frozen=True, kw_only=True)
class ResolvedTool:
    """The tool that a request names."""

    server: ToolServer
    spec: ToolServerSpec
    listing: ToolListing
    tool: Tool

    @property
    def name(self) -> str:
        """SERVER.TOOL."""
        return f"{self.server.name}.{self.tool.name}"


@dataclass(kw_only=True, eq=False)
class Call:
    """A call in progress."""

    grant: CallRights
    request: CallRequest
    quota: ExecutionQuota | CallerQuota
    scanner: AccountScanner
    notify_approval: ApprovalNotifier
    started: float
    """On the performance counter."""
    server: ToolServer | None = None
    resolved: ResolvedTool | None = None
    decision: PolicyDecision | None = None
    session: UpstreamSession | None = None
    is_modern: bool = False
    """Whether the session uses the protocol of 2026-07-28 or later."""
    record_id: str = ""
    """Id of the audit record, empty before there is one."""
    recorded: asyncio.Future[None] | None = None
    """Done once the audit record is written; the call must not travel earlier."""
    approval: Approval | None = None
    """The approval that the call waits for or received."""
    result_size: int = 0
    """Bytes of the server's answer, if they are many."""
    external_seconds: float = 0.0
    """Time spent at the server, or waiting for an approval or a slot."""
    waits_for: str = ""
    """What the call waits for before it travels; empty once the server may have received it."""
    notes: list[str] = field(default_factory=list)
    """What was left out of the arguments or changed in the result, for the caller: a sentence each."""
    tool_error: str | None = None
    """Message of a result with `isError` that is passed on as it is."""
    is_redacted: bool = False
    """Whether the answer contained credentials of the server."""

    @contextmanager
    def cancelled_with_execution(self) -> Iterator[None]:
        """Cancel what the task does when its execution ends, and raise ToolCallError then: the caller has not left."""
        task, is_ended = asyncio.current_task(), False

        def cancel() -> None:
            nonlocal is_ended
            is_ended = True
            if task is not None:
                task.cancel()

        remove_callback = None if self.quota.is_closed else self.quota.add_close_callback(cancel)
        try:
            yield
        except asyncio.CancelledError:
            if task is None or not is_ended or task.uncancel():
                raise
            raise build_denial(ErrorReason.EXECUTION_ENDED, "the execution has ended") from None
        finally:
            if remove_callback is not None:
                remove_callback()

    async def wait_until_recorded(self) -> None:
        """Wait for the audit record, if there is one. Raises ToolCallError (AuditUnavailable)."""
        if self.recorded is None:
            return
        try:
            await self.recorded
        except sqlite3.Error as error:
            log.error("a call is not made, because its audit record cannot be written: %s", error)
            raise build_unaudited_error() from None

    @property
    def server_name(self) -> str:
        """The server's name, empty if the server is unknown."""
        return self.server.name if self.server else ""

    @property
    def tool_name(self) -> str:
        """SERVER.TOOL, or the requested name if the tool is unknown."""
        return self.resolved.name if self.resolved else self.request.tool[:_MAX_NAME]

    @property
    def secrets(self) -> list[str]:
        """Credentials that no answer may contain."""
        return self.session.secrets if self.session is not None else []


class Offload:
    """Runs the work on large calls in threads: on the event loop it would delay all other calls.

    The interpreter runs one thread at a time and changes between them after a few bytecodes, so that the loop continues
    meanwhile. A single long step in C would hold the loop up in any thread: `api/call_body.py` bounds these.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="large calls")

    async def run(self, work: Callable[[], Result], *, size: int) -> Result:
        """Run the work on `size` bytes: here if they are few, else in a thread."""
        if size <= INLINE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def shorten_switch_interval() -> None:
    """Let the event loop interrupt threads earlier."""
    sys.setswitchinterval(SWITCH_SECONDS)
