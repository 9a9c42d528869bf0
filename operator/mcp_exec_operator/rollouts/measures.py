"""What the arms of rollouts measured, read from the records at most every few seconds."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final, Protocol

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_common.rollouts.progress import RolloutMeasures

log = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 10.0
"""Age up to which measures are used again."""
_STALE_SECONDS: Final = 60.0
"""Age up to which measures are used although newer ones cannot be read: a restart of the broker stops no rollout."""
_READ_SECONDS: Final = 5.0
"""Longest wait for the records."""
NO_RECORDS: Final = RolloutMeasures(problem="the operator reads no records, so that guards have no samples")


@dataclass(frozen=True, kw_only=True)
class RolloutIdentity:
    """The rollout whose outcomes are read. One that was created again has another uid."""

    namespace: str
    name: str
    uid: str


class RecordsUnreadable(Exception):
    """The records cannot be read; the message says why."""


class MeasuresReader(Protocol):
    """Source of what the arms of a rollout measured: the broker's records."""

    async def read(self, rollout: RolloutIdentity, spec: ExecutionRolloutSpec) -> RolloutMeasures:
        """Return the measures of all guards in their windows, and of all arms. Raises RecordsUnreadable."""


@dataclass(frozen=True, kw_only=True)
class _Reading:
    measures: RolloutMeasures
    read_at: float
    """Time of the last success, by the monotonic clock."""
    tried_at: float


@dataclass(kw_only=True, eq=False)
class MeasuresCache:
    """Measures of each rollout that were read last."""

    reader: MeasuresReader | None = None
    """None if there are no records: then no guard has samples."""
    clock: Callable[[], float] = monotonic
    _readings: dict[str, _Reading] = field(default_factory=dict)
    """By uid."""

    async def get(self, rollout: RolloutIdentity, spec: ExecutionRolloutSpec) -> RolloutMeasures:
        """Return the measures of a rollout, or measures with the problem if they cannot be read."""
        if self.reader is None:
            return NO_RECORDS
        now, last = self.clock(), self._readings.get(rollout.uid)
        if last is not None and now - last.tried_at < _FRESH_SECONDS:
            return last.measures
        try:
            async with asyncio.timeout(_READ_SECONDS):
                measures = await self.reader.read(rollout, spec)
        except (RecordsUnreadable, TimeoutError) as error:
            problem = str(error) or f"the records were not read within {_READ_SECONDS:.0f} s"
            log.warning("rollout %s: %s", rollout.name, problem, extra={"namespace": rollout.namespace})
            if last is not None and now - last.read_at < _STALE_SECONDS:
                self._readings[rollout.uid] = replace(last, tried_at=now)
                return last.measures
            measures = RolloutMeasures(problem=problem)
            self._readings[rollout.uid] = _Reading(measures=measures, read_at=float("-inf"), tried_at=now)
            return measures
        self._readings[rollout.uid] = _Reading(measures=measures, read_at=now, tried_at=now)
        return measures

    def forget(self, uid: str) -> None:
        """Drop the measures of a rollout that was deleted."""
        self._readings.pop(uid, None)
