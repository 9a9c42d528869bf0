"""Waits for a new sandbox's supervisor to say that it is idle. The connection stays open for the execution to come."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from mcp_exec_api.protocol import SandboxError
from mcp_exec_api.sandboxes import Sandbox

_FIRST_PAUSE: Final = 0.02
_LAST_PAUSE: Final = 0.5


class SandboxNotIdle(Exception):
    """The sandbox has accepted an execution."""


async def until_idle(
    sandbox: Sandbox, *, wanted: Callable[[], bool], turns: asyncio.Semaphore, timeout_seconds: float
) -> bool:
    """True once it is idle; False where it is no longer wanted or the time is up. It is asked in one of `turns`.

    Raises SandboxNotIdle where it runs or ran something.
    """
    deadline = monotonic() + timeout_seconds
    pause = _FIRST_PAUSE
    while wanted() and monotonic() < deadline:
        try:
            async with turns:
                state = await sandbox.state()
        except SandboxError:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LAST_PAUSE)
        else:
            if state != "idle":
                raise SandboxNotIdle(state)
            return True
    return False
