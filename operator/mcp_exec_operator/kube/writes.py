"""Bounds of the operator's writes: status writes come before pods, and Events have a rate. Builds these Events."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.constants import API_VERSION
from mcp_exec_api.meta import micro_time
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.util.token_bucket import TokenBucket
from mcp_exec_tools.text import shorten

_IDLE_WRITES: Final = 8
"""Status writes in flight that pod creation and deletion do not slow down."""
_MAX_DEFER_SECONDS: Final = 2.0
"""Longest deferral, counted from the moment the writes became many: an endless load needs new pods too."""
_MAX_MESSAGE: Final = 900
"""Characters of an Event's message; the API server takes 1024 bytes."""
_PER_SECOND: Final = 0.5
_BURST: Final = 20
_MAX_NAMESPACES: Final = 1000
"""Namespaces whose rate is remembered; after more, all begin again."""


@dataclass(kw_only=True, eq=False)
class WritePriority:
    """Counter of the status writes in flight, over all pools."""

    clock: Callable[[], float] = monotonic
    _in_flight: int = 0
    _busy_since: float | None = None
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count one status write while the context lasts."""
        self._in_flight += 1
        if self._in_flight > _IDLE_WRITES and self._busy_since is None:
            self._busy_since = self.clock()
            self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight <= _IDLE_WRITES:
                self._busy_since = None
                self._idle.set()

    def defer_seconds(self) -> float:
        """Return how many seconds pod creation and deletion should wait; 0 if they need not."""
        if self._busy_since is None:
            return 0.0
        return max(0.0, self._busy_since + _MAX_DEFER_SECONDS - self.clock())

    async def wait_until_idle(self) -> None:
        """Wait until few writes are in flight, or until the longest deferral is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.defer_seconds()):
                await self._idle.wait()


def build_event(
    about: str, *, key: ObjectKey, uid: str, kind: str = "Normal", reason: str, message: str, moment: datetime
) -> Object:
    """Return an Event about an object of a kind of this API, for example `CodeExecution`.

    `kind` is Normal or Warning.
    """
    namespace, name = key
    at = micro_time(moment)[:19] + "Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name[:200]}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": about,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "type": kind,
        "reason": reason,
        "message": shorten(message, _MAX_MESSAGE),
        "source": {"component": "mcp-exec-operator"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


@dataclass(kw_only=True)
class EventBudget:
    """Events that each namespace may still have: 20 at once, and one every two seconds."""

    clock: Callable[[], float] = monotonic
    _buckets: dict[str, TokenBucket] = field(default_factory=dict, init=False)

    def take(self, namespace: str) -> bool:
        """Return whether one more Event may be created in the namespace, and count it."""
        if namespace not in self._buckets and len(self._buckets) >= _MAX_NAMESPACES:
            self._buckets.clear()
        bucket = self._buckets.setdefault(namespace, TokenBucket(per_second=_PER_SECOND, burst=_BURST))
        now = self.clock()
        if not bucket.available(now):
            return False
        bucket.spend(1, now)
        return True
