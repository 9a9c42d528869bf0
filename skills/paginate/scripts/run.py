"""Collection of pages."""

import inspect
from collections.abc import Callable

from client import call_mcp_tool, progress


async def run(
    fetch: Callable | None = None,
    tool: str | None = None,
    arguments: dict | None = None,
    items: str = "items",
    next: str = "next_cursor",
    cursor: str = "cursor",
    pages: bool = False,
    limit: int = 10_000,
    max_pages: int = 100,
) -> dict:
    """Return the items of all pages, the number of pages, and whether these were all (`complete`).

    Args:
        fetch: function that returns the page of a cursor (None at first), plain or async; or else:
        tool: tool that returns a page, for example `github.list_issues`.
        arguments: arguments of the tool without the cursor.
        items: field of a page with its items, for example `data.issues`. A page may also be a list.
        next: field of a page with the next cursor, for example `meta.cursor`.
        cursor: parameter of the tool for the cursor.
        pages: whether the cursor is a page number from 1, and an empty page is the last.
        limit: maximum number of items.
        max_pages: maximum number of pages.
    """
    found: list = []
    position = 1 if pages else None
    number = 0
    while number < max_pages and len(found) < limit:
        page = await _fetch(fetch, tool, arguments or {}, cursor, position)
        part = page if isinstance(page, list) else _read(page, items)
        if not isinstance(part, list):
            shown = list(page)[:50] if isinstance(page, dict) else type(page).__name__
            raise LookupError(f"the page has no list {items!r}: it has {shown}; name the field by `items`")
        found += part
        number += 1
        progress(number, text=f"{len(found)} items")
        last = position
        position = position + 1 if pages else _read(page, next)
        if position in (None, "", False) or (pages and not part):
            return {"items": found[:limit], "pages": number, "complete": len(found) <= limit}
        if position == last:
            raise RuntimeError(f"page {number} names its own cursor {last!r} as the next; {len(found)} items so far")
    return {"items": found[:limit], "pages": number, "complete": False}


def _read(page: object, path: str) -> object:
    for part in path.split("."):
        page = page.get(part) if isinstance(page, dict) else None
    return page


async def _fetch(fetch: Callable | None, tool: str | None, arguments: dict, cursor: str, position: object) -> object:
    if fetch is None:
        if tool is None:
            raise ValueError("give fetch or tool")
        return await call_mcp_tool(tool, {**arguments, **({} if position is None else {cursor: position})})
    page = fetch(position)
    return await page if inspect.isawaitable(page) else page
