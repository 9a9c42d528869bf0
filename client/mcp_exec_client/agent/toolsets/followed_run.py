"""One block of code: submitted, followed to its end, and cancelled if its caller gives up."""

import asyncio
import uuid
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final, Unpack

from mcp_exec_client.agent.approvals import OnApproval, decide_approval
from mcp_exec_client.agent.events import OnEvent, RunEvent
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import GatewayUnreachable, McpExecError, WaitExpired
from mcp_exec_client.events import ApprovalEvent
from mcp_exec_client.options import RunOptions
from mcp_exec_client.types import Execution

_START_SECONDS: Final = 60.0
"""Time for a block of code to get a sandbox, in addition to its time limit."""
_TIMEOUT_SECONDS: Final = 30
_CANCEL_SECONDS: Final = 5.0
_MAX_DECISIONS: Final = 100
"""Approvals of one block of code that the application decides; others wait for somebody else."""


@dataclass(kw_only=True)
class FollowedRun:
    """Runs blocks of code, and passes their events on."""

    client: AsyncClient
    on_event: OnEvent
    on_approval: OnApproval | None = None

    async def run(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """Run code and return the execution at its end. Raises McpExecError; WaitExpired if it takes too long.

        The time that the application takes for approvals does not count.
        """
        seconds = options.get("timeout_seconds", _TIMEOUT_SECONDS) + _START_SECONDS
        key = uuid.uuid4().hex
        try:
            execution = await self.client.submit(code, idempotency_key=key, **options)
        except asyncio.CancelledError:
            await self._abandon(code, key, options)
            raise
        try:
            async with asyncio.timeout(seconds) as limit:
                await self._follow(execution.name, limit, seconds)
                return await self.client.wait(execution.name, wait_seconds=seconds)
        except TimeoutError as error:
            await self._cancel(execution.name)
            raise WaitExpired(f"execution {execution.name} has not ended within {seconds:g} seconds") from error
        except (asyncio.CancelledError, WaitExpired):
            await self._cancel(execution.name)
            raise

    async def _follow(self, name: str, limit: asyncio.Timeout, seconds: float) -> None:
        """Pass on the events up to the end, or up to a lost stream: the execution continues without it."""
        deciding: set[asyncio.Task[None]] = set()
        decided = 0

        def restart(task: asyncio.Task[None]) -> None:
            deciding.discard(task)
            if not deciding and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + seconds)

        try:
            async with aclosing(self.client.stream(name)) as events:
                async for event in events:
                    await self.on_event(RunEvent(execution=name, event=event))
                    if isinstance(event, ApprovalEvent) and self.on_approval and decided < _MAX_DECISIONS:
                        decided += 1
                        decision = decide_approval(self.client, name, event.approval, self.on_approval)
                        task = asyncio.create_task(decision)
                        deciding.add(task)
                        task.add_done_callback(restart)
                        limit.reschedule(None)
        except GatewayUnreachable:
            return
        finally:
            for task in deciding:
                task.remove_done_callback(restart)
                task.cancel()
            if deciding:
                await asyncio.gather(*deciding, return_exceptions=True)
            if deciding and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + seconds)

    async def _abandon(self, code: str, key: str, options: RunOptions) -> None:
        """Cancel an execution whose name is not known: the same request, with the same key, returns it."""
        with suppress(McpExecError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                execution = await self.client.submit(code, idempotency_key=key, **options)
                await self.client.cancel(execution.name)

    async def _cancel(self, name: str) -> None:
        with suppress(McpExecError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.client.cancel(name)
