"""Records of the namespace: executions, tool calls, model usage, feedback, and outcomes of rollouts."""

from collections.abc import AsyncGenerator
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from mcp_exec_client.iteration import streamed
from mcp_exec_client.state.channel import RequestChannel
from mcp_exec_client.suggestions import suggesting

RecordTable = Literal["executions", "calls", "model_usage", "feedback", "exposures", "outcomes"]
"""Tables of the records."""
UsageGrouping = Literal["use-case", "caller", "tool", "arm", "day", "model"]
"""By what usage is grouped."""
_PAGE: Final = 1000
_MAX_PAGES: Final = 100_000


class ExportPage(BaseModel):
    """A page of records."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    items: list[dict[str, Any]]
    next: str | None = None


@suggesting
class Records:
    """Records that the caller may read."""

    def __init__(self, channel: RequestChannel) -> None:
        self._channel = channel

    @streamed
    async def read(self, table: RecordTable) -> AsyncGenerator[dict[str, Any], None]:
        """Yield all records of a table by column, oldest first. Times are microseconds since 1970."""
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            query = {"limit": str(_PAGE), "cursor": cursor}
            page = await self._channel.fetch(ExportPage, "GET", f"/v1/records/{table}", query=query)
            for item in page.items:
                yield item
            cursor = page.next
            if cursor is None:
                return
