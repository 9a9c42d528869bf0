"""Records of the namespace: executions, tool calls, model usage, feedback, and outcomes of rollouts."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from mcp_exec_api.wire.records import RecordList, RecordTable
from mcp_exec_client.iteration import streamed
from mcp_exec_client.state.channel import RequestChannel
from mcp_exec_client.suggestions import suggesting

_PAGE: Final = 1000
_MAX_PAGES: Final = 100_000


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
            page = await self._channel.fetch(RecordList, "GET", f"/v1/records/{table}", query=query)
            for item in page.items:
                yield item
            cursor = page.next
            if cursor is None:
                return
