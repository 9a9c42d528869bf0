"""Outcomes of the units of a rollout: what its guards and its report measure."""

import hashlib
import time
from typing import Any

from mcp_exec_api.wire.records import NewOutcome
from mcp_exec_api.wire.rollouts import MeasuredRollout
from mcp_exec_common.broker.records import RecordsClient, RecordsError
from mcp_exec_gateway.records.reading import build_problem, records_off


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
