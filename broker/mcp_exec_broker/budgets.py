"""How much one execution may use of tools, and all executions together of one server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from mcp_exec_api.execution import ToolCalls
from mcp_exec_api.grants import Grant
from mcp_exec_api.toolserver import ServerLimits


class Account:
    """One execution's use of tools."""

    grant: Grant
    closed: bool
    tool_calls: ToolCalls  # a property: the counts

    def begin(self, tool: str, *, argument_bytes: int) -> None:
        """Counts a call (SERVER.TOOL), denied ones too. Raises Failure: BudgetExceeded, ExecutionEnded."""

    def end(self, *, failed: bool, result_bytes: int) -> None:
        """Counts how a call that began ended, and the bytes that go into the sandbox."""

    def slot(self) -> AbstractAsyncContextManager[None]:
        """One of the execution's calls at once; waits for it."""
        raise NotImplementedError

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back, once, when the execution is closed (at once where it is); returns what undoes that."""
        raise NotImplementedError


class Accounts:
    """The accounts of all executions. Those of ended ones are kept for an hour, and so many at most."""

    def open(self, grant: Grant) -> Account:
        """The execution's account; made by its first call."""
        raise NotImplementedError

    def find(self, uid: str) -> Account | None:
        """The account, where there is one."""

    def close(self, uid: str) -> None:
        """The execution has ended, also one that was never seen: no call of it begins any more."""


class Servers:
    """The use of each server by all executions."""

    def slot(
        self, key: tuple[str, str], limits: ServerLimits, *, timeout_seconds: float
    ) -> AbstractAsyncContextManager[None]:
        """One of the server's calls at once, by namespace and name. Raises Failure: RateLimited at once where the
        minute's calls are used up, and where no place is free within the time."""
        raise NotImplementedError
