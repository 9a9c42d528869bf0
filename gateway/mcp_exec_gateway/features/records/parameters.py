"""Parameters of the routes of records, usage and audit records."""

from typing import Annotated, Final, Literal

from pydantic import Field

from mcp_exec_api.wire.usage import UsageGrouping
from mcp_exec_common.broker.records import MAX_RECORDS
from mcp_exec_gateway.core.http.parameters import Moment, NamespaceQuery

DEFAULT_DAYS: Final = 30
"""Days of usage, unless a request names a time."""


class RecordsQuery(NamespaceQuery):
    """Parameters of reading records."""

    limit: Annotated[int, Field(ge=1, le=MAX_RECORDS, description="Maximum number of records on a page.")] = MAX_RECORDS
    cursor: Annotated[str | None, Field(max_length=4000, description="The `next` of the previous page.")] = None


class UsageQuery(NamespaceQuery):
    """Parameters of usage."""

    by: Annotated[
        UsageGrouping,
        Field(description="Group by this. An arm is ROLLOUT/ARM, a day is one of UTC, a tool is SERVER.TOOL."),
    ] = "use-case"
    since: Annotated[
        Moment | None,
        Field(description=f"Only what began at or after this time (RFC 3339); {DEFAULT_DAYS} days by default."),
    ] = None
    until: Annotated[Moment | None, Field(description="Only what began before this time (RFC 3339).")] = None


class AuditQuery(NamespaceQuery):
    """Parameters of listing audit records of tool calls."""

    execution: Annotated[str | None, Field(min_length=1, max_length=253, description="Name of an execution.")] = None
    tool: Annotated[
        str | None, Field(min_length=1, max_length=256, description="A tool as SERVER.TOOL, or a server as SERVER.")
    ] = None
    outcome: Annotated[str | None, Field(min_length=1, max_length=64, description="Outcome of the call.")] = None
    source: Annotated[
        Literal["code", "direct"] | None, Field(description="code: calls of executions. direct: calls of MCP clients.")
    ] = None
    since: Annotated[Moment | None, Field(description="Only calls at or after this time (RFC 3339).")] = None
    until: Annotated[Moment | None, Field(description="Only calls before this time (RFC 3339).")] = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of records on a page.")] = 100
    cursor: Annotated[str | None, Field(max_length=8192, description="The `next` of the previous page.")] = None
