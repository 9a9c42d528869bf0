"""Conversations of an application with a model, and records: what was used, what people think of it, and arms."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from mcp_exec_api.wire.records import NewUsageReport, RecordList, RecordTable
from mcp_exec_api.wire.rollouts import Assignment, RolloutReport
from mcp_exec_client.event_stream import streamed
from mcp_exec_client.options import suggesting
from mcp_exec_client.state.channel import RequestChannel, quote_segment
from mcp_exec_client.state.results import drop_unset

_CONVERSATIONS: Final = "/v1/conversations"
_ROLLOUTS: Final = "/v1/rollouts"
_PAGE: Final = 1000
_MAX_PAGES: Final = 100_000


@suggesting
class Conversations:
    """Reports about conversations, which executions name by `conversation`."""

    def __init__(self, channel: RequestChannel) -> None:
        self._channel = channel

    async def report_usage(self, conversation: str, usage: NewUsageReport) -> None:
        """Report what a model used. A report that is sent twice counts once."""
        path = f"{_CONVERSATIONS}/{quote_segment(conversation)}/usage"
        await self._channel.send("POST", path, body=usage.to_api())

    async def report_feedback(
        self,
        conversation: str,
        rating: int,
        *,
        id: str,
        comment: str | None = None,
        user: str | None = None,
        rollout: str | None = None,
        unit: str | None = None,
    ) -> None:
        """Report what a person thinks, from 1 to 5. A report that is sent twice with the same id counts once."""
        body = {"id": id, "rating": rating, "comment": comment, "user": user, "rollout": rollout, "unit": unit}
        path = f"{_CONVERSATIONS}/{quote_segment(conversation)}/feedback"
        await self._channel.send("POST", path, body=drop_unset(body))

    async def assign(self, rollout: str, unit: str) -> Assignment:
        """Return the arm of a unit, for example of a user. It stays the same for the whole rollout."""
        path = f"{_ROLLOUTS}/{quote_segment(rollout)}/assignments"
        return await self._channel.fetch(Assignment, "POST", path, body={"unit": unit})

    async def report_outcome(
        self,
        rollout: str,
        unit: str,
        *,
        id: str,
        user: str | None = None,
        success: bool | None = None,
        latency_ms: int | None = None,
        tokens: int | None = None,
        cost: float | None = None,
        rating: int | None = None,
    ) -> None:
        """Report what came of a unit's task, for the arm that the unit has. The same id counts once."""
        body: dict[str, Any] = {"id": id, "unit": unit, "user": user, "success": success, "latencyMs": latency_ms}
        body |= {"tokens": tokens, "cost": cost, "rating": rating}
        await self._channel.send("POST", f"{_ROLLOUTS}/{quote_segment(rollout)}/outcomes", body=drop_unset(body))

    async def rollout_report(self, rollout: str) -> RolloutReport:
        """Return what each arm of a rollout measured, with 95 % confidence intervals."""
        return await self._channel.fetch(RolloutReport, "GET", f"{_ROLLOUTS}/{quote_segment(rollout)}/report")


@suggesting
class Records:
    """Records that the caller may read."""

    def __init__(self, channel: RequestChannel) -> None:
        self._channel = channel

    @streamed
    def read(self, table: RecordTable) -> AsyncGenerator[dict[str, Any], None]:
        """Yield all records of a table by column, oldest first. Times are microseconds since 1970."""
        return self._channel.list_items(
            RecordList,
            f"/v1/records/{quote_segment(table)}",
            query={"limit": str(_PAGE)},
            cursor="cursor",
            find_next=lambda page: page.next,
            max_pages=_MAX_PAGES,
        )
