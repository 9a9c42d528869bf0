"""Work through a list, several items at a time."""

import asyncio
import inspect
from collections.abc import Callable

from client import call_mcp_tool, progress


async def run(
    items: list,
    action: Callable | None = None,
    tool: str | None = None,
    arguments: dict | None = None,
    parameter: str = "item",
    concurrency: int = 8,
    max_errors: int = 100,
) -> dict:
    """Return the results in the order of the items (None for one that failed or did not start), and the errors.

    The errors are by the position of their item. `started` is less than the number of items if there were too many.

    Args:
        items: the items.
        action: function of one item, plain or async; or else:
        tool: tool to call for each item.
        arguments: further arguments of the tool.
        parameter: parameter of the tool that gets the item.
        concurrency: number of items at a time.
        max_errors: number of failed items; no further item is started after them.
    """
    if action is None and tool is None:
        raise ValueError("give action or tool")
    results: list = [None] * len(items)
    errors: dict[int, str] = {}
    waiting, started, done = iter(enumerate(items)), 0, 0

    async def work() -> None:
        nonlocal started, done
        for number, item in waiting:  # all workers take from the same iterator
            started += 1
            try:
                answer = action(item) if action else call_mcp_tool(tool, {**(arguments or {}), parameter: item})
                results[number] = await answer if inspect.isawaitable(answer) else answer
            except Exception as error:
                errors[number] = f"{type(error).__name__}: {error}"[:500]
            done += 1
            progress(done, len(items), f"{len(errors)} failed" if errors else "")
            if len(errors) >= max_errors:
                break

    await asyncio.gather(*(work() for _ in range(min(max(1, concurrency), len(items)))))
    return {"results": results, "errors": errors, "started": started, "succeeded": done - len(errors)}
