"""Uses of API keys: a record for each key and hour with a request."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_common.broker.records import MAX_RECORDS, RecordsClient, RecordsError, RecordsOff, RecordsQueue
from mcp_exec_gateway.core.auth.api_keys import ApiKey

log = logging.getLogger(__name__)

_MAX_KEYS: Final = 10_000
"""Keys whose last hour is remembered; after more, all begin again. Rows that are sent again change nothing."""
_GATHER_SECONDS: Final = 20.0
_RETRY_SECONDS: Final = 60.0
_HOUR: Final = 3600

_Name = tuple[str, str]
"""Namespace and name of a key."""


@dataclass(kw_only=True, eq=False)
class KeyUses(RecordsQueue):
    """Records the uses of keys, each key once an hour. A request never waits for it.

    While the broker is away, the last hour of each key is kept, and earlier ones are not recorded.
    """

    client: RecordsClient
    clock: Callable[[], datetime] = now
    gather_seconds: float = _GATHER_SECONDS
    retry_seconds: float = _RETRY_SECONDS
    _hours: dict[_Name, int] = field(default_factory=dict, init=False)
    """The last hour of each key, in hours since 1970."""
    _waiting: dict[_Name, int] = field(default_factory=dict, init=False)
    """Those without a record yet."""

    def observe(self, key: ApiKey) -> None:
        """Record that a request had a valid key."""
        name, hour = (key.entry.namespace, key.name), int(self.clock().timestamp()) // _HOUR
        if self._hours.get(name) == hour:
            return
        if len(self._hours) >= _MAX_KEYS:
            self._hours.clear()
            self._waiting.clear()
        self._hours[name] = self._waiting[name] = hour
        self.changed()

    def lose_all(self) -> None:
        """Log what waits as lost."""
        log.warning("uses of %d API keys have no record at the end", len(self._waiting))

    async def send_all(self) -> bool:
        """Send what waits, in batches. Return whether nothing is left."""
        while batch := dict(islice(self._waiting.items(), MAX_RECORDS)):
            rows = [
                {"namespace": namespace, "caller": name, "at": hour * _HOUR * 1_000_000}
                for (namespace, name), hour in batch.items()
            ]
            try:
                await self.client.add({"key_uses": rows})
            except RecordsOff:
                self._waiting.clear()
                return True
            except RecordsError as error:
                log.warning("uses of %d API keys have no record yet: %s", len(self._waiting), error)
                return False
            for name, hour in batch.items():
                if self._waiting.get(name) == hour:
                    del self._waiting[name]
        return True
