"""One request to the endpoint, as the tools see it."""

from dataclasses import dataclass
from typing import Any

from fastapi.security import HTTPAuthorizationCredentials
from mcp.server.context import ServerRequestContext
from starlette.requests import Request

from mcp_exec_gateway.auth.callers import Caller, Verb
from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.executions.limits.spec import narrow_tools
from mcp_exec_gateway.http.access_log import get_trace
from mcp_exec_gateway.http.limits import Reservation
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.mcp.options import McpOptions
from mcp_exec_gateway.mcp.transport.exchange import Exchange
from mcp_exec_gateway.mcp.transport.session import Session
from mcp_exec_gateway.pools.libraries import describe_pool
from mcp_exec_gateway.retries.service import Departure


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The authenticated sender of one message."""

    http: Request
    dependencies: Dependencies
    credentials: HTTPAuthorizationCredentials
    caller: Caller
    """Who sent the message, with the right to list; `authorize` checks further rights."""
    options: McpOptions

    @property
    def namespace(self) -> str:
        """Namespace of everything that the message reads and runs."""
        return self.caller.namespace

    @property
    def allowed_tools(self) -> list[str] | None:
        """Patterns of the tools that searches show and code may call: those of the URL within the key's; None for all.

        Raises HttpProblem, a 403, if the key may use none of those of the URL.
        """
        return narrow_tools(self.options.tools, caller=self.caller)

    async def authorize(self, verb: Verb) -> Caller:
        """Return the caller, who may do this as well. Raises HttpProblem: 403."""
        return await self.dependencies.callers.authorize(self.caller, self.credentials, verb)

    async def may(self, verb: Verb) -> bool:
        """Return whether the caller may do this as well."""
        try:
            await self.authorize(verb)
        except HttpProblem:
            return False
        return True

    def describe_pool(self) -> str:
        """Return Python and libraries of the pool that code runs in, in words; empty if they are unknown."""
        return describe_pool(self.options.pool, caller=self.caller, pools=self.dependencies.pools)

    def trace_execution(self, name: str) -> None:
        """Record the execution's name in the access log."""
        get_trace(self.http.scope).execution = name


@dataclass(frozen=True, kw_only=True)
class McpRequest:
    """One request with everything that serves it."""

    sender: Sender
    exchange: Exchange
    memory: Reservation
    """Memory of the body."""
    version: str
    """The protocol's revision."""
    is_modern: bool
    """Whether the revision has no sessions (2026-07-28)."""
    session: Session | None = None
    """Session of the revisions before; None if the client sent none."""
    elicitation: bool = False
    """Whether the client can show forms to its user."""

    @property
    def departure(self) -> Departure:
        """What becomes of the execution if the client disconnects."""
        default = Departure.CANCEL_LATER if self.is_modern else Departure.CONTINUE
        return choose_departure(self.sender.options, default=default)


def choose_departure(options: McpOptions, *, default: Departure) -> Departure:
    """Return what becomes of a run whose client has left: what the application decided, or the default."""
    chosen = {"cancel": Departure.CANCEL, "continue": Departure.CONTINUE}.get(options.on_disconnect or "")
    return chosen or default


Context = ServerRequestContext[Any, Any]
"""What the SDK passes to a handler; its `request` is an McpRequest."""


def get_request(context: Context) -> McpRequest:
    """Return the request of a handler's context."""
    request = context.request
    assert isinstance(request, McpRequest)  # noqa: S101 - the endpoint sets it
    return request
