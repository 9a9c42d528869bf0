"""Documentation of libraries by Context7."""

import json
import re

from client import call_mcp_tool


async def run(library: str, question: str, library_id: str | None = None, max_characters: int = 8000) -> str:
    """Return the parts of a library's documentation that answer a question.

    Args:
        library: name of the library, for example `starlette`.
        question: what to look up.
        library_id: Context7's id of the library, for example `/encode/starlette`; by default the best match.
        max_characters: maximum length of the answer.
    """
    if library_id is None:
        found = await call_mcp_tool("context7.resolve-library-id", {"query": question, "libraryName": library})
        match = re.search(r"/[\w.-]+/[\w./-]+", found if isinstance(found, str) else json.dumps(found))
        if match is None:
            raise LookupError(f"Context7 has no library {library!r}")
        library_id = match[0]
    text = await call_mcp_tool("context7.query-docs", {"libraryId": library_id, "query": question})
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return text if len(text) <= max_characters else text[:max_characters] + "\n[... cut ...]"
