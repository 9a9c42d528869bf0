"""Specs of unfinished executions: kept in bounded memory, read again if they were discarded, and parsed once.

A queue may hold thousands of executions of 512 KiB each, whose parsed context takes up to thirty times as much.
"""

import asyncio
import hashlib
import heapq
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_exec_api.code_execution import IMMUTABLE, CodeExecutionSpec, spec_digest
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.weight import weigh
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.facts import ExecutionFacts
from mcp_exec_operator.core.executions.outcome import ExecutionGone

CACHE_BYTES: Final = 64 * 1024 * 1024
"""Memory of all kept specs: enough for those of 10,000 ordinary executions."""
IN_USE_BYTES: Final = 96 * 1024 * 1024
"""Memory of large specs that are being bound or sent at the same time."""
LARGE_BYTES: Final = 256 * 1024
"""Smallest memory of a large spec: 50 times that of an ordinary one. Only large specs ever wait for each other."""
_COPIES: Final = 4
"""Memory of a job while it is sent, by that of its spec: as read, as validated, as JSON, and in the socket's buffer."""


@dataclass(kw_only=True, eq=False)
class SpecCache:
    """Specs of all unfinished executions. If they take too much memory, the largest are discarded first.

    So a caller's large executions never displace ordinary ones, which start without another request.
    """

    api: OperatorApi
    limit: int = CACHE_BYTES
    in_use_limit: int = IN_USE_BYTES
    _kept: dict[str, "SpecHolder"] = field(default_factory=dict)
    """By uid, those whose specs are kept."""
    _heaviest: list[tuple[int, str]] = field(default_factory=list)
    """Heap of negative weight and uid."""
    _used: int = 0
    _in_use: int = 0
    _waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)
    """Weights and futures of large specs that wait for memory, first come, first served."""

    def keep(self, holder: "SpecHolder") -> None:
        """Keep the spec of a new execution, and discard the largest specs if they take too much memory together."""
        self.discard(holder)
        holder.weight = weigh(holder.spec, limit=self.limit)
        uid = holder.facts.uid
        self._kept[uid] = holder
        self._used += holder.weight
        heapq.heappush(self._heaviest, (-holder.weight, uid))
        while self._used > self.limit:
            weight, uid = heapq.heappop(self._heaviest)
            if uid in self._kept and self._kept[uid].weight == -weight:
                self.drop(self._kept[uid])
        if len(self._heaviest) > 2 * len(self._kept) + 64:
            self._heaviest = [(-each.weight, uid) for uid, each in self._kept.items()]
            heapq.heapify(self._heaviest)

    def discard(self, holder: "SpecHolder") -> None:
        """Stop counting a spec: its execution has ended."""
        if (kept := self._kept.pop(holder.facts.uid, None)) is not None:
            self._used -= kept.weight

    def drop(self, holder: "SpecHolder") -> None:
        """Discard a spec to save memory. It is read again if it is needed again."""
        self.discard(holder)
        holder.discard()

    async def reserve(self, weight: int) -> int:
        """Reserve memory for a large spec of this weight. Return the reserved bytes, which `release` takes.

        It waits until other large ones are released.
        """
        reserved = min(weight * _COPIES, self.in_use_limit)
        if not self._waiting and self._in_use + reserved <= self.in_use_limit:
            self._in_use += reserved
            return reserved
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((reserved, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(reserved)
            raise
        return reserved

    def release(self, reserved: int) -> None:
        """Release so many reserved bytes."""
        self._in_use -= reserved
        while self._waiting and self._in_use + self._waiting[0][0] <= self.in_use_limit:
            weight, future = self._waiting.popleft()
            if not future.done():
                self._in_use += weight
                future.set_result(None)


@dataclass(kw_only=True, eq=False)
class SpecHolder:
    """The spec of one execution as it was first seen, which is the one that runs.

    While the execution is admitted, bound and sent, it is in use: parsed once, and a large one counts against the
    memory of specs in use. It is released for a wait, since thousands may wait, and once the sandbox has the job.
    """

    cache: SpecCache
    facts: ExecutionFacts
    spec: Object | None
    """None once it was discarded to save memory."""
    weight: int = 0
    """Bytes of memory of the spec."""
    changed: list[str] = field(default_factory=list)
    """Immutable fields that were changed since, on a cluster that did not reject it."""
    _field_digests: dict[str, bytes] = field(default_factory=dict)
    """Digests of the fields of a spec that was discarded."""
    _reserved: int = 0
    """Bytes of the spec that count against the memory of specs in use."""
    parsed: CodeExecutionSpec | None = None
    """The spec in use, once it was parsed."""
    _in_use: Object | None = None

    async def read(self) -> Object:
        """Return the spec as JSON data. Read it if it was discarded. Raises ExecutionGone and ApiError."""
        if self._in_use is None:
            if self.weight > LARGE_BYTES:
                self._reserved = await self.cache.reserve(self.weight)
            try:
                self._in_use = self.spec if self.spec is not None else await self._read_again()
            except BaseException:
                self.release()
                raise
        return self._in_use

    def release(self, *, is_sent: bool = False) -> None:
        """Release the memory of its use. It may be read again. Repeated calls change nothing.

        `is_sent` says that the sandbox has the job: only to send it again it is needed, so a large one is dropped.
        """
        self._in_use = self.parsed = None
        if self._reserved:
            reserved, self._reserved = self._reserved, 0
            self.cache.release(reserved)
        if is_sent and self.weight > LARGE_BYTES:
            self.cache.drop(self)

    def discard(self) -> None:
        """Discard the spec to save memory. What can still change in it is recognised by digests."""
        if self.spec is not None:
            self._field_digests = {name: _digest(self.spec.get(name)) for name in IMMUTABLE}
            self.spec = None

    def list_changes(self, spec: Object) -> list[str]:
        """Return the names of the immutable fields whose values differ from those of the spec that runs."""
        if self.spec is not None:
            return [name for name in IMMUTABLE if self.spec.get(name) != spec.get(name)]
        return [name for name in IMMUTABLE if self._field_digests.get(name) != _digest(spec.get(name))]

    async def _read_again(self) -> Object:
        body = await self.cache.api.get("CodeExecution", self.facts.namespace, self.facts.name)
        if body is None or body["metadata"]["uid"] != self.facts.uid:
            raise ExecutionGone
        spec: Object = body.get("spec") or {}
        if spec_digest(spec) != self.facts.digest:
            self.changed = self.list_changes(spec)
        return spec


def _digest(value: Any) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
