"""The port for sandboxes: tool calls and files."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette

from mcp_exec_broker.api.call_body import Receive
from mcp_exec_broker.api.calls import CallsApi, Send
from mcp_exec_broker.api.sandbox_files import FILES_PREFIX


@dataclass(frozen=True, kw_only=True)
class SandboxApp:
    """The ASGI application of the port for sandboxes."""

    calls: CallsApi
    files: Starlette | None
    """Routes on files; None if this installation stores none."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self.files is not None and scope["type"] == "http" and scope["path"].startswith(FILES_PREFIX):
            await self.files(scope, receive, send)
        else:
            await self.calls(scope, receive, send)
