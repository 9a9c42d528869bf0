"""Tool calls for a caller without an execution: which tools it may use, and how the broker is asked to call one."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from mcp_exec_common.broker.client import BrokerError
from mcp_exec_common.broker.direct_calls import CallUncertain, DirectCallClient
from mcp_exec_common.broker.grants import DIRECT_CALLS_PER_MINUTE, ApprovedCall, DirectGrant
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.peers import InvalidAnswer, parse_answer
from mcp_exec_common.util.weight import weigh_json
from mcp_exec_gateway.core.auth.callers import Caller, check_user
from mcp_exec_gateway.core.executions.limits import check_tools
from mcp_exec_gateway.core.http.limits import Reservation
from mcp_exec_gateway.core.http.problems import unavailable
from mcp_exec_gateway.core.pools import CachedPool, PoolCache, check_pool, find_pool
from mcp_exec_gateway.features.tools.catalogs import ExportedTool, ToolRights

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_MAX_LINE: Final = 66 * 1024 * 1024
"""Bytes of an answer: more than `resultBytes` of a ToolServer may be."""
_REASONS: Final = {400: "InvalidArguments", 411: "InvalidArguments", 413: "InvalidArguments", 429: "RateLimited"}
"""Reason of a call that the broker refuses, by the HTTP status."""
_COPIES: Final = 2
"""Copies of an answer's text and values: as it was read, and as it is sent."""
_THREAD_BYTES: Final = 64 * 1024
"""An answer with more bytes is weighed and parsed in a thread."""


class _NoMemory(Exception):
    """A result does not fit the memory of this replica."""


@dataclass(frozen=True, kw_only=True)
class DirectAccess:
    """A caller with what its direct calls may use."""

    caller: Caller
    pool: CachedPool
    """The pool whose rules on tools apply, although no sandbox runs."""
    tools: tuple[str, ...] | None
    """Patterns that the application chose, within those of the API key; None for no choice."""
    user: str | None
    conversation: str | None

    @classmethod
    def check(
        cls,
        caller: Caller,
        *,
        pools: PoolCache,
        pool: str,
        tools: Sequence[str] | None,
        user: str | None,
        conversation: str | None = None,
    ) -> "DirectAccess":
        """Apply the limits of the API key, as to an execution.

        Raises HttpProblem: 403 for a pool, tool or user that the API key may not use, 422 if there is no such pool.
        """
        check_pool(pool, caller=caller, field="pool")
        check_tools(tools or (), caller=caller)
        check_user(user, caller=caller)
        return cls(
            caller=caller,
            pool=find_pool(pool, caller=caller, pools=pools, field="pool"),
            tools=None if tools is None else tuple(tools),
            user=user,
            conversation=conversation,
        )

    @property
    def rights(self) -> ToolRights:
        """The tools that the caller may use."""
        rules = self.pool.tools
        chosen = [self.caller.limits.tools, self.tools, rules.allow]
        allow = tuple(tuple(patterns) for patterns in chosen if patterns is not None and "*.*" not in patterns)
        return ToolRights(allow=allow, deny=tuple(rules.deny))

    def build_grant(self, approved: ApprovedCall | None = None) -> DirectGrant:
        """Return the grant of a call. Its expiry is set when it is signed."""
        caller = self.caller
        tools = next(
            (list(patterns) for patterns in (self.tools, caller.limits.tools) if patterns is not None), ["*.*"]
        )
        return DirectGrant(
            namespace=caller.namespace,
            pool=self.pool.name,
            caller=caller.label,
            user=self.user,
            conversation=self.conversation,
            tools=tools,
            pool_tools=self.pool.tools,
            calls_per_minute=caller.limits.direct_calls_per_minute or DIRECT_CALLS_PER_MINUTE,
            approved=approved,
            expires=0,
        )


async def call_tool(
    calls: DirectCallClient | None,
    access: DirectAccess,
    tool: ExportedTool,
    arguments: Mapping[str, Any],
    *,
    memory: Reservation,
    approved: ApprovedCall | None = None,
) -> Object:
    """Call a tool and return the broker's answer: `result`, or the fields of an error.

    `memory` is for the answer, in addition to what it holds. Raises HttpProblem, a 503, if the call was not made.
    Cancelling it cancels the call.
    """
    if calls is None:
        raise unavailable("no tool broker is configured")
    # the broker reads id and tool before the rest
    held = memory.size

    def reserve(size: int) -> None:
        if not memory.resize(held + _COPIES * size):
            raise _NoMemory(
                f"the tool was called, but its result, of {size} bytes in memory, does not fit this replica now"
            )

    body = json.dumps({"id": "1", "tool": tool.path, "arguments": arguments}, separators=(",", ":")).encode()
    try:
        line = await calls.call(
            access.build_grant(approved),
            body,
            limit=_MAX_LINE,
            reserve=reserve,
        )
        limit = memory.budget.namespace_limit // _COPIES
        reserve(await _run(lambda: weigh_json(line, limit=limit), size=len(line)))
        return await _run(lambda: parse_answer(line), size=len(line))
    except _NoMemory as error:
        return _build_error("ResultTooLarge", str(error))
    except (CallUncertain, InvalidAnswer) as error:
        log.warning("a direct call has no answer: %s", error)
        message = "the tool broker failed or the connection to it was lost; the server may have done it all the same"
        return _build_error("ConnectionLost", message)
    except BrokerError as error:
        if error.status in _REASONS:
            return _build_error(_REASONS[error.status], str(error))
        log.warning("a direct call was not made: %s", error)
        raise unavailable("the call was not made, because no tool broker accepts it") from error


async def _run(work: Callable[[], Result], *, size: int) -> Result:
    """Do work on so many bytes: in a thread if they are many."""
    return work() if size < _THREAD_BYTES else await asyncio.to_thread(work)


def _build_error(reason: str, message: str) -> Object:
    return {"type": "error", "kind": "ToolProtocolError", "reason": reason, "message": message}


class CallCancelled(Exception):
    """The caller cancelled the call."""


@dataclass(kw_only=True, eq=False)
class RunningCalls:
    """Tasks of calls by a key of caller, session and request. Only this replica knows them."""

    _tasks: "dict[str, asyncio.Task[object]]" = field(default_factory=dict)
    _cancelled: set[str] = field(default_factory=set)

    @contextmanager
    def hold(self, key: str | None) -> Iterator[None]:
        """Let `cancel` end what the current task does inside the context. Raises CallCancelled if it did."""
        task = asyncio.current_task()
        if key is None or task is None or key in self._tasks:
            yield
            return
        self._tasks[key] = task
        try:
            yield
        except asyncio.CancelledError:
            if key not in self._cancelled or task.uncancel():
                raise
            raise CallCancelled from None
        finally:
            del self._tasks[key]
            self._cancelled.discard(key)

    def cancel(self, key: str) -> bool:
        """Cancel a call, and return whether there is one."""
        task = self._tasks.get(key)
        if task is None:
            return False
        if key not in self._cancelled:
            self._cancelled.add(key)
            task.cancel()
        return True
