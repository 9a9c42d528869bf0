"""One call while it is under way, and what is known of it so far."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_api.approvals import Approval
from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_broker.access.policy import PolicyDecision
from mcp_exec_broker.access.quotas import ExecutionQuota
from mcp_exec_broker.catalog.entry import ToolListing
from mcp_exec_broker.scanning.tokenizer import Tokenizer
from mcp_exec_broker.upstream.servers import ToolServer
from mcp_exec_broker.upstream.session import UpstreamSession
from mcp_exec_common.broker.grants import Grant
from mcp_exec_tools.catalog import Tool

_MAX_NAME: Final = 300

ApprovalNotifier = Callable[[Approval], Awaitable[None]]
"""Tells the sandbox that its call waits for consent."""


@dataclass(frozen=True, kw_only=True)
class CallRequest:
    """What a sandbox asks for."""

    id: str
    """Its own id of the call."""
    tool: str
    """In any of its spellings."""
    arguments: dict[str, Any]
    size: int
    """Bytes of the request."""
    timeout_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class ResolvedTool:
    """The tool that is called."""

    server: ToolServer
    spec: ToolServerSpec
    known: ToolListing
    tool: Tool

    @property
    def name(self) -> str:
        """SERVER.TOOL."""
        return f"{self.server.name}.{self.tool.name}"


@dataclass(kw_only=True, eq=False)
class Call:
    """A call under way."""

    grant: Grant
    asked: CallRequest
    account: ExecutionQuota
    vault: Tokenizer
    notice: ApprovalNotifier
    began: float
    """By the performance counter."""
    server: ToolServer | None = None
    target: ResolvedTool | None = None
    verdict: PolicyDecision | None = None
    session: UpstreamSession | None = None
    is_modern: bool = False
    """Whether the session speaks the protocol of 2026-07-28 or later."""
    audited: str = ""
    """Its id in the audit, once it is there."""
    approval: Approval | None = None
    """What it waits for, or waited; who approved it is known once somebody did."""
    elsewhere: float = 0.0
    """Seconds that were the server's, or of somebody who had to consent."""
    waits_for: str = ""
    """What it waits for before it travels; nothing once the server may have it."""
    is_ended: bool = False
    """Whether its execution has ended meanwhile."""

    @property
    def server_name(self) -> str:
        """The server, as far as it is known."""
        return self.server.name if self.server else ""

    @property
    def tool_name(self) -> str:
        """SERVER.TOOL, or what the sandbox said."""
        return self.target.name if self.target else self.asked.tool[:_MAX_NAME]

    @property
    def secrets(self) -> list[str]:
        """Values that no answer may have in it."""
        return self.session.secrets if self.session is not None else []
