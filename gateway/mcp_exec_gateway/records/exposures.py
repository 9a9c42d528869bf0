"""Exposures: which units of a rollout asked for their arm. They are recorded in the background."""

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mcp_exec_common.broker.records import MAX_RECORDS, RecordsClient, RecordsError, RecordsOff
from mcp_exec_gateway.metrics import Metrics

log = logging.getLogger(__name__)

_MAX_WAITING: Final = 10_000
_MAX_SENT: Final = 100_000
"""Units that are known to have a record. Those that are forgotten are sent again, which changes nothing."""
_GATHER_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 5.0
_FLUSH_SECONDS: Final = 2.0

_Key = tuple[str, str]
"""Uid of the rollout, and unit."""


@dataclass(kw_only=True, eq=False)
class ExposureLog:
    """Records each unit of a rollout once. An answer never waits for it, and its memory is bounded."""

    client: RecordsClient | None
    metrics: Metrics
    _waiting: dict[_Key, dict[str, object]] = field(default_factory=dict)
    _sent: OrderedDict[_Key, None] = field(default_factory=OrderedDict)
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, *, namespace: str, rollout: str, uid: str, unit: str, arm: str, stage: str) -> None:
        """Record a unit soon, unless it has a record. Further units are dropped, and counted, if too many wait."""
        key = uid, unit
        if self.client is None or key in self._sent or key in self._waiting:
            return
        if len(self._waiting) >= _MAX_WAITING:
            self.metrics.exposures_dropped.inc()
            return
        identity = {"namespace": namespace, "rollout": rollout, "rollout_uid": uid, "unit": unit}
        self._waiting[key] = {**identity, "arm": arm, "stage": stage, "at": time.time_ns() // 1000}
        self._wakeup.set()

    async def run(self) -> None:
        """Send exposures until cancelled, then those that wait, for at most two seconds."""
        try:
            while True:
                await self._wakeup.wait()
                await asyncio.sleep(_GATHER_SECONDS)
                if not await self._send_all():
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            try:
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self._send_all()
            except TimeoutError:
                self.metrics.exposures_dropped.inc(len(self._waiting))

    async def _send_all(self) -> bool:
        """Send what waits, and return whether nothing is left."""
        self._wakeup.clear()
        while self._waiting and self.client is not None:
            batch = dict(islice(self._waiting.items(), MAX_RECORDS))
            try:
                await self.client.add({"exposures": list(batch.values())})
            except RecordsOff:
                self._waiting.clear()
                return True
            except RecordsError as error:
                log.warning("%d exposures have no record yet: %s", len(self._waiting), error)
                self._wakeup.set()
                return False
            for key in batch:  # a refused row would be refused again
                self._waiting.pop(key, None)
                self._sent[key] = None
            while len(self._sent) > _MAX_SENT:
                self._sent.popitem(last=False)
        return True
