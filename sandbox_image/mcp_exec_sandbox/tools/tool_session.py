"""What this execution may do with tools: where the broker is, the grant, the allow-list. One for the whole process."""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcp_exec_sandbox.tools.arguments import encode_arguments
from mcp_exec_sandbox.tools.connection import Answer, BrokerLost, BrokerRefused
from mcp_exec_sandbox.tools.connection_pool import BrokerUnreachable, Pools
from mcp_exec_sandbox.tools.errors import ToolDenied, ToolError, ToolProtocolError, error_of
from mcp_exec_sandbox.tools.results import Files, result_of

Emit = Callable[[dict[str, Any]], None]
"""Tells the supervisor of an event."""

_NO_TOOLS = (
    "this execution may call no tools: its spec.tools is empty. Whoever creates the execution allows them by name or "
    'pattern, such as spec.tools: ["github.create_issue", "filesystem.*"]'
)


@dataclass(frozen=True, kw_only=True)
class Grant:
    """The job's `tools`: the broker's address, what proves who calls, and the patterns that are allowed."""

    host: str
    port: int
    token: str
    allow: tuple[str, ...]

    @classmethod
    def from_job(cls, fields: Mapping[str, Any]) -> "Grant":
        """Read what the supervisor has checked."""
        url = urlsplit(fields["url"])
        return cls(host=url.hostname or "", port=url.port or 80, token=fields["token"], allow=tuple(fields["allow"]))

    def __repr__(self) -> str:
        return f"Grant(allow={list(self.allow)})"


class Session:
    """Makes the calls of one execution and tells of them."""

    def __init__(self, *, grant: Grant | None, emit: Emit, workspace: Path) -> None:
        self._pools = Pools(host=grant.host, port=grant.port, token=grant.token) if grant is not None else None
        self._emit = emit
        self._numbers = itertools.count(1)
        self._files = Files(workspace)
        self.workspace = workspace
        """Where the code works."""
        self.allow = grant.allow if grant is not None else ()
        """Patterns of the tools that may be called."""

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_seconds: float | None) -> Any:
        """Call a tool. Raises ToolError and its subclasses."""
        if self._pools is None:
            raise ToolDenied(_NO_TOOLS, tool=tool, reason="NotAllowed")
        text = encode_arguments(tool, arguments)
        identifier = f"call-{next(self._numbers)}"
        self._emit({"type": "tool_call", "id": identifier, "tool": tool, "argumentBytes": len(text.encode())})
        started = time.perf_counter()
        size, failure = 0, None
        try:
            body = encode_arguments(tool, {"id": identifier, "tool": tool, **_timeout(timeout_seconds)})
            answer, size = await self._ask(tool, f'{body[:-1]},"arguments":{text}}}'.encode("utf-8", "replace"))
            return self._value(tool, answer)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._tell_end(identifier, tool, failure, size, time.perf_counter() - started)

    async def _ask(self, tool: str, body: bytes) -> tuple[Answer, int]:
        assert self._pools is not None  # noqa: S101 - `call` has looked
        try:
            return await self._pools.here().call(body, self._on_notice)
        except BrokerUnreachable as error:
            message = f"the tool broker can't be reached ({error}); the tool was not called"
            raise ToolProtocolError(message, tool=tool, reason="ServerUnavailable") from None
        except BrokerLost as error:
            message = f"no answer came ({error}); the tool may have done its work"
            raise ToolProtocolError(message, tool=tool, reason="ConnectionLost") from None
        except BrokerRefused as error:
            raise _refusal(tool, error) from None

    def _on_notice(self, notice: Answer) -> None:
        if notice.get("type") == "approval":
            fields = {name: notice.get(name) for name in ("id", "tool", "expiresAt")}
            self._emit({"type": "approval", **fields})

    def _value(self, tool: str, answer: Answer) -> Any:
        if answer["type"] == "error":
            raise error_of(answer, tool=tool)
        if "value" in answer:
            return answer["value"]
        if isinstance(content := answer.get("content"), list):
            return result_of(content, answer.get("structured"), self._files)
        raise ToolProtocolError("the broker's answer has no value", tool=tool, reason="ConnectionLost")

    def _tell_end(self, identifier: str, tool: str, failure: BaseException | None, size: int, seconds: float) -> None:
        event = {"type": "tool_result", "id": identifier, "tool": tool, "ok": failure is None, "kind": None}
        if failure is not None:
            event["kind"] = type(failure).__name__
            if isinstance(failure, ToolError):
                event["message"] = failure.message[:1000]
        self._emit({**event, "bytes": size, "ms": round(seconds * 1000, 3)})


def _timeout(seconds: float | None) -> dict[str, float]:
    return {} if seconds is None else {"timeoutSeconds": seconds}


def _refusal(tool: str, refused: BrokerRefused) -> ToolError:
    message = refused.text or f"the broker answered {refused.status}"
    if refused.status == 401:
        return ToolDenied(f"the broker does not know this execution: {message}", tool=tool, reason="ExecutionEnded")
    if refused.status == 413:
        return ToolError(f"the arguments are too large: {message}", tool=tool, reason="InvalidArguments")
    if refused.status == 429:
        return ToolDenied(message, tool=tool, reason="RateLimited")
    if refused.status < 500:
        return ToolError(message, tool=tool, reason="InvalidArguments")
    return ToolProtocolError(f"the broker failed: {message}", tool=tool, reason="ServerUnavailable")


_current: list[Session] = []


def begin(session: Session) -> None:
    """Make this the process's session."""
    _current[:] = [session]


def current() -> Session:
    """The process's session; before one has begun, one without tools."""
    if not _current:
        return Session(grant=None, emit=lambda event: None, workspace=Path.cwd())
    return _current[0]
