"""Conversations of an application with a model: what they used, what people think of them, and their arms."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from mcp_exec_client.state.channel import RequestChannel, quote_segment
from mcp_exec_client.state.results import drop_unset
from mcp_exec_client.suggestions import suggesting

_CONVERSATIONS: Final = "/v1/conversations"
_ROLLOUTS: Final = "/v1/rollouts"


class ReportedUsage(BaseModel):
    """What a model used for one task. The id makes a repetition of the report safe."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    id: Annotated[str, Field(min_length=1, max_length=64)]
    model: str
    mode: Literal["direct", "code", "hybrid"]
    turns: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    definition_tokens: int = 0
    counted: Literal["provider", "estimate"]
    success: bool | None = None
    latency_ms: int | None = None
    user: str | None = None
    use_case: str | None = None
    rollout: str | None = None
    unit: str | None = None
    """Unit of the rollout; the gateway finds the arm."""


class AssignedArm(BaseModel):
    """Arm of a rollout for one unit."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    arm: str
    mode: str | None = None
    """direct, code or hybrid; None if the arms are not modes."""


@suggesting
class Conversations:
    """Reports about conversations, which executions name by `conversation`."""

    def __init__(self, channel: RequestChannel) -> None:
        self._channel = channel

    async def report_usage(self, conversation: str, usage: ReportedUsage) -> None:
        """Report what a model used. A report that is sent twice counts once."""
        body = usage.model_dump(by_alias=True, exclude_none=True, mode="json")
        await self._channel.send("POST", f"{_CONVERSATIONS}/{quote_segment(conversation)}/usage", body=body)

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

    async def assign(self, rollout: str, unit: str) -> AssignedArm:
        """Return the arm of a unit, for example of a user. It stays the same for the whole rollout."""
        path = f"{_ROLLOUTS}/{quote_segment(rollout)}/assignments"
        return await self._channel.fetch(AssignedArm, "POST", path, body={"unit": unit})

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

    async def rollout_report(self, rollout: str) -> dict[str, Any]:
        """Return what each arm of a rollout measured, with 95 % confidence intervals."""
        path = f"{_ROLLOUTS}/{quote_segment(rollout)}/report"
        report: dict[str, Any] = (await self._channel.send("GET", path)).to_json()
        return report
