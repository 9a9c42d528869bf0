"""Definitions of tools for clients, page by page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mcp_types import Tool
from pydantic import ValidationError

from mcp_exec_gateway.http.problems import invalid_field
from mcp_exec_gateway.tools.exported import MAX_NAME, ExportedTool
from mcp_exec_tools.catalog import Tool as CatalogTool
from mcp_exec_tools.schemas.reading import has_dangling_reference

PAGE_TOOLS: Final = 100
PAGE_BYTES: Final = 512 * 1024
"""Bytes of definitions on one page, unless a single one is larger."""
_CURSOR: Final = re.compile(rf"after\.([A-Za-z0-9_-]{{1,{MAX_NAME}}})")


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of definitions."""

    tools: list[Tool]
    next_cursor: str | None


def build_page(tools: Sequence[ExportedTool], cursor: str | None, *, is_modern: bool) -> Page:
    """Return the page after a cursor, or the first one. `tools` are in alphabetical order.

    The cursor is a name, so that a page neither repeats nor leaves out tools that were there before. Raises
    HttpProblem, a 422, for a cursor of another server.
    """
    last = _parse_cursor(cursor)
    remaining = [tool for tool in tools if tool.name > last]
    page: list[Tool] = []
    size = 0
    for number, tool in enumerate(remaining):
        size += tool.size
        if page and (len(page) >= PAGE_TOOLS or size > PAGE_BYTES):
            return Page(tools=page, next_cursor=f"after.{remaining[number - 1].name}")
        definition = _define(tool, is_modern=is_modern)
        if definition is not None:
            page.append(definition)
    return Page(tools=page, next_cursor=None)


def _parse_cursor(cursor: str | None) -> str:
    if cursor is None:
        return ""
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise invalid_field("cursor", "malformed: send the `nextCursor` of the previous page unchanged")
    return match[1]


def _define(tool: ExportedTool, *, is_modern: bool) -> Tool | None:
    """Return the definition of a tool as models accept it, or None if the revision has no form for it."""
    given = tool.tool
    fields: dict[str, Any] = {
        "name": tool.name,
        "title": given.title or None,
        "description": tool.model.description or None,
        "inputSchema": tool.model.schema,
        "annotations": given.annotations or None,
    }
    if _is_declared(given) and (is_modern or _is_object(given.output_schema)):
        fields["outputSchema"] = given.output_schema
    try:
        return Tool.model_validate(fields, by_name=False)
    except ValidationError:
        return None


def _is_declared(tool: CatalogTool) -> bool:
    """Return whether clients can validate results: an inferred schema is a guess, a dangling reference an error."""
    return tool.output_schema is not None and not tool.inferred and not has_dangling_reference(tool.output_schema)


def _is_object(schema: Any) -> bool:
    # before 2026 the schema of a result was that of an object
    return bool(schema.get("type") == "object")
