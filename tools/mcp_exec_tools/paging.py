"""The pages of one listing of an MCP server, and where it ends."""

import hashlib
from typing import Final

MAX_PAGES: Final = 100


class Pages:
    """Cursor of the next page. Cursors are opaque: an empty one names a page, too. A repeated one ends the listing."""

    def __init__(self) -> None:
        self.cursor: str | None = None
        """None for the first page."""
        self.problem = ""
        """Why pages may be missing, such as "repeats a page"; empty if none are."""
        self._seen: set[bytes] = set()

    def advance(self, cursor: str | None, *, brings_news: bool) -> bool:
        """Take the `nextCursor` of a page and return whether there is another page to request.

        `brings_news` is False for a page that has entries, all of which were listed before.
        """
        if cursor is None:
            return False
        digest = hashlib.sha256(cursor.encode("utf-8", "surrogatepass")).digest()
        if not brings_news or digest in self._seen:
            # many servers end with an empty cursor, and answer it with their first page
            self.problem = "" if self.cursor == "" and not brings_news else "repeats a page"
            return False
        if len(self._seen) + 1 >= MAX_PAGES:
            self.problem = f"has more than {MAX_PAGES} pages of tools"
            return False
        self._seen.add(digest)
        self.cursor = cursor
        return True
