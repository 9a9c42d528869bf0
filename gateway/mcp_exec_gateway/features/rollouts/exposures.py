"""Exposures of rollouts: each unit that asked for its arm is recorded once, by requests to the broker in batches."""

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from typing import Final

from mcp_exec_common.broker.records import MAX_RECORDS, RecordsClient, RecordsError, RecordsOff, RecordsQueue
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.metrics import Metrics

log = logging.getLogger(__name__)

_MAX_WAITING: Final = 10_000
_MAX_SENT: Final = 100_000
"""Units that are known to have a record. Those that are forgotten are sent again, which changes nothing."""
_GATHER_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 5.0

_Key = tuple[str, str]
"""Uid of the rollout, and unit."""
_Row = dict[str, object]


@dataclass(kw_only=True, eq=False)
class WaitingUnits:
    """Units without a record yet, at most `limit`. If they are too many, who has most of them loses its newest."""

    limit: int = _MAX_WAITING
    _rows: dict[_Key, tuple[Caller, _Row]] = field(default_factory=dict)
    _owners: dict[str, dict[str, dict[_Key, None]]] = field(default_factory=dict)
    """Keys by namespace and caller."""

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: _Key) -> bool:
        return key in self._rows

    def add(self, key: _Key, row: _Row, *, caller: Caller) -> bool:
        """Add a unit. Return whether none had to be dropped: of the largest namespace, and of its largest caller."""
        self._rows[key] = (caller, row)
        self._owners.setdefault(caller.namespace, {}).setdefault(caller.name, {})[key] = None
        if len(self._rows) <= self.limit:
            return True
        callers = max(self._owners.values(), key=lambda each: sum(map(len, each.values())))
        largest = max(callers.values(), key=lambda each: len(each))
        self._remove(next(reversed(largest)))
        return False

    def take(self, count: int) -> dict[_Key, _Row]:
        """Return the oldest units, of each namespace and of each of its callers in turn. They stay until removed."""
        turns = _take_turns(_take_turns(callers.values()) for callers in self._owners.values())
        return {key: self._rows[key][1] for key in islice(turns, count)}

    def remove_all(self, keys: Iterable[_Key]) -> None:
        """Remove units."""
        for key in keys:
            if key in self._rows:
                self._remove(key)

    def clear(self) -> None:
        """Remove all units."""
        self._rows.clear()
        self._owners.clear()

    def _remove(self, key: _Key) -> None:
        caller, _ = self._rows.pop(key)
        callers = self._owners[caller.namespace]
        del callers[caller.name][key]
        if not callers[caller.name]:
            del callers[caller.name]
        if not callers:
            del self._owners[caller.namespace]


def _take_turns(groups: Iterable[Iterable[_Key]]) -> Iterator[_Key]:
    """Yield the first of each group, then the second of each, and so on."""
    return (key for key in chain.from_iterable(zip_longest(*groups)) if key is not None)


@dataclass(kw_only=True, eq=False)
class ExposureLog(RecordsQueue):
    """Records each unit of a rollout once. An answer never waits for it, and its memory is bounded."""

    client: RecordsClient | None
    metrics: Metrics
    gather_seconds: float = _GATHER_SECONDS
    retry_seconds: float = _RETRY_SECONDS
    _waiting: WaitingUnits = field(default_factory=WaitingUnits)
    _sent: OrderedDict[_Key, None] = field(default_factory=OrderedDict)

    def add(self, *, caller: Caller, rollout: str, uid: str, unit: str, arm: str, stage: str) -> None:
        """Record a unit soon, unless it has a record. If too many wait, one is dropped and counted."""
        key = uid, unit
        if self.client is None or key in self._sent or key in self._waiting:
            return
        identity = {"namespace": caller.namespace, "rollout": rollout, "rollout_uid": uid, "unit": unit}
        row = {**identity, "arm": arm, "stage": stage, "at": time.time_ns() // 1000}
        if not self._waiting.add(key, row, caller=caller):
            self.metrics.exposures_dropped.inc()
        self.changed()

    def lose_all(self) -> None:
        """Count what waits as dropped."""
        self.metrics.exposures_dropped.inc(len(self._waiting))

    async def send_all(self) -> bool:
        """Send what waits, in batches. Return whether nothing is left."""
        while self._waiting and self.client is not None:
            batch = self._waiting.take(MAX_RECORDS)
            try:
                await self.client.add({"exposures": list(batch.values())})
            except RecordsOff:
                self._waiting.clear()
                return True
            except RecordsError as error:
                log.warning("%d exposures have no record yet: %s", len(self._waiting), error)
                return False
            self._waiting.remove_all(batch)  # a refused row would be refused again
            for key in batch:
                self._sent[key] = None
            while len(self._sent) > _MAX_SENT:
                self._sent.popitem(last=False)
        return True
