"""Retries with growing delays."""

import asyncio
import inspect
import random
from collections.abc import Callable

from client import ToolDenied, call_mcp_tool, progress

_FINAL = (ToolDenied, TypeError, NameError, AttributeError, ImportError, NotImplementedError)


async def run(
    action: Callable | None = None,
    tool: str | None = None,
    arguments: dict | None = None,
    attempts: int = 5,
    first_delay: float = 0.5,
    factor: float = 2.0,
    last_delay: float = 20.0,
) -> object:
    """Return the answer of the first attempt that succeeds. Raise the error of the last one.

    A call that is denied is not repeated, nor is code that is wrong (TypeError, NameError and the like).

    Args:
        action: function to call, plain or async; or else:
        tool: tool to call.
        arguments: arguments of the tool.
        attempts: maximum number of calls.
        first_delay: seconds before the second call.
        factor: growth of the delay.
        last_delay: longest delay in seconds.
    """
    if action is None and tool is None:
        raise ValueError("give action or tool")
    if attempts < 1:
        raise ValueError("attempts must be at least 1")
    delay = first_delay
    for number in range(1, attempts + 1):
        try:
            answer = action() if action is not None else call_mcp_tool(tool, arguments or {})
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            if number == attempts or isinstance(error, _FINAL):
                raise
            progress(number, attempts, f"{type(error).__name__}, again in {delay:.1f} s")
        await asyncio.sleep(delay * random.uniform(0.8, 1.2))
        delay = min(delay * factor, last_delay)
    return None
