"""Outcomes of the units of a rollout: what its guards and its report measure."""

import hashlib
import time
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from mcp_exec_api.meta import Model
from mcp_exec_api.rollouts.rollout import RolloutUnit
from mcp_exec_common.broker.records import RecordsClient, RecordsError
from mcp_exec_common.broker.rollout_measures import MeasuredRollout
from mcp_exec_gateway.records.reading import build_problem, records_off

_Count = Annotated[int, Field(ge=0, le=4 * 10**9)]
"""The tokens of a report are of four kinds."""


class NewOutcome(Model):
    """What came of one conversation or task of a unit."""

    id: Annotated[str, Field(min_length=1, max_length=64)]
    """Id that the caller makes. An outcome that is sent again with the same id counts once."""
    unit: RolloutUnit
    """The unit that asked for an arm. The gateway finds its arm."""
    user: RolloutUnit | None = None
    """User of the unit, as in the request for the arm."""
    success: bool | None = None
    """Whether the task succeeded."""
    latency_ms: _Count | None = None
    """Milliseconds that the task took."""
    tokens: _Count | None = None
    """Tokens that the model read and wrote."""
    cost: Annotated[float | None, Field(ge=0, le=1e12)] = None
    """Money that the task cost, in the currency of the application."""
    rating: Annotated[int | None, Field(ge=1, le=5)] = None
    """What the person thinks, from 1, bad, to 5, good."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if all(value is None for value in (self.success, self.latency_ms, self.tokens, self.cost, self.rating)):
            raise ValueError("one of success, latencyMs, tokens, cost and rating is needed")
        return self


def build_outcome_row(
    outcome: NewOutcome, *, namespace: str, caller: str, rollout: str, uid: str, arm: str
) -> dict[str, object]:
    """Return the row of an outcome. Ids of different callers never meet."""
    row: dict[str, object] = outcome.model_dump(mode="json", exclude_none=True, exclude={"user"})
    key = hashlib.sha256(f"{uid}\0{caller}\0{outcome.id}".encode("utf-8", "replace")).hexdigest()
    identity = {"id": key, "namespace": namespace, "rollout": rollout, "rollout_uid": uid, "arm": arm}
    return row | identity | {"at": time.time_ns() // 1000}


async def measure_rollout(client: RecordsClient | None, *, namespace: str, uid: str) -> MeasuredRollout:
    """Return what the arms measured since the rollout began. Raises HttpProblem: 404 without records, 503."""
    if client is None:
        raise records_off()
    try:
        return await client.measure_rollout(namespace=namespace, uid=uid)
    except RecordsError as error:
        raise build_problem(error) from error


def build_report(measured: MeasuredRollout, *, rollout: str, control: str | None) -> dict[str, Any]:
    """Return the report as a response shows it."""
    return {"rollout": rollout, "control": control, "confidence": 0.95, **measured.to_api()}
