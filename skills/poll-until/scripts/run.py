"""Wait for a value."""

import asyncio
import inspect
import time
from collections.abc import Callable

from client import call_mcp_tool, progress


async def run(
    check: Callable | None = None,
    tool: str | None = None,
    arguments: dict | None = None,
    field: str = "",
    values: list | None = None,
    every: float = 2.0,
    seconds: float = 60.0,
) -> dict:
    """Return the last answer, its value, and whether the wait succeeded.

    Args:
        check: function that returns an answer, plain or async; or else:
        tool: tool that returns an answer.
        arguments: arguments of the tool.
        field: path of the value in the answer, for example `status.phase` or `items.0.state`; by default the answer.
        values: values that end the wait; by default every value that is true.
        every: seconds between two calls.
        seconds: seconds until the wait ends without success.
    """
    began, calls, every = time.monotonic(), 0, max(every, 0.01)
    while True:
        calls += 1
        answer = await _ask(check, tool, arguments or {})
        value = _read(answer, field)
        holds = bool(value) if values is None else value in values
        passed = time.monotonic() - began
        if holds or passed + every > seconds:
            return {"ok": holds, "value": value, "answer": answer, "calls": calls, "seconds": round(passed, 1)}
        progress(calls, text=f"{value!r} after {passed:.0f} s")
        await asyncio.sleep(every)


def _read(value: object, path: str) -> object:
    for part in path.split(".") if path else ():
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


async def _ask(check: Callable | None, tool: str | None, arguments: dict) -> object:
    if check is None:
        if tool is None:
            raise ValueError("give check or tool")
        return await call_mcp_tool(tool, arguments)
    answer = check()
    return await answer if inspect.isawaitable(answer) else answer
