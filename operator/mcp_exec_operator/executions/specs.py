"""Specs of unfinished executions: kept in bounded memory, read again if they were dropped, and parsed once.

A queue may hold thousands of executions of 512 KiB each, whose parsed context takes up to thirty times as much.
"""

import asyncio
import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Self

from pydantic import ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec, Phase, spec_digest
from mcp_exec_api.meta import field_errors
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.weight import weigh
from mcp_exec_operator.executions.outcome import EndedBeforeRun, ExecutionGone, build_cancellation, build_failure
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.kube.api import OperatorApi

CACHE_BYTES: Final = 64 * 1024 * 1024
"""Memory of all kept specs: enough for those of 10,000 ordinary executions."""
IN_USE_BYTES: Final = 96 * 1024 * 1024
"""Memory of large specs that are being bound or sent at the same time."""
LARGE_BYTES: Final = 256 * 1024
"""Smallest memory of a large spec: 50 times that of an ordinary one. Only large specs ever wait for each other."""
_COPIES: Final = 4
"""Memory of a job while it is sent, by that of its spec: as read, as validated, as JSON, and in the socket's buffer."""


@dataclass(kw_only=True, eq=False)
class SpecHold:
    """A whole spec, in memory until it is released."""

    spec: Object | None
    """None once it is released."""
    weight: int
    """Bytes that count against the memory of specs in use; 0 if the spec is not large."""


@dataclass(kw_only=True, eq=False)
class SpecCache:
    """Specs of the records of all unfinished executions. If they take too much memory, the largest are dropped first.

    So a caller's large executions never displace ordinary ones, which start without another request.
    """

    api: OperatorApi
    limit: int = CACHE_BYTES
    in_use_limit: int = IN_USE_BYTES
    _kept: dict[str, tuple[int, ExecutionRecord]] = field(default_factory=dict)
    """Weight and record by uid, of specs that are kept."""
    _heaviest: list[tuple[int, str]] = field(default_factory=list)
    """Heap of negative weight and uid."""
    _used: int = 0
    _in_use: int = 0
    _waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)
    """Weights and futures of large specs that wait for memory, first come, first served."""

    @property
    def used_bytes(self) -> int:
        """Memory of the kept specs."""
        return self._used

    def keep(self, record: ExecutionRecord) -> None:
        """Keep the spec of a new record, and drop the largest specs if they take too much memory together."""
        self.discard(record)
        record.weight = weigh(record.spec, limit=self.limit)
        self._kept[record.uid] = (record.weight, record)
        self._used += record.weight
        heapq.heappush(self._heaviest, (-record.weight, record.uid))
        while self._used > self.limit:
            weight, uid = heapq.heappop(self._heaviest)
            if uid in self._kept and self._kept[uid][0] == -weight:
                self._discard(uid)
        if len(self._heaviest) > 2 * len(self._kept) + 64:
            self._heaviest = [(-weight, uid) for uid, (weight, _) in self._kept.items()]
            heapq.heapify(self._heaviest)

    def discard(self, record: ExecutionRecord) -> None:
        """Stop counting a record's spec: the execution has ended."""
        weight, _ = self._kept.pop(record.uid, (0, None))
        self._used -= weight

    def discard_if_large(self, record: ExecutionRecord) -> None:
        """Discard a large spec whose execution has started. It is needed only to send the job again."""
        if record.weight > LARGE_BYTES and record.uid in self._kept:
            self._discard(record.uid)

    async def acquire(self, record: ExecutionRecord) -> SpecHold:
        """Return the whole spec of a record. A large one waits until other large ones are released.

        Raises ExecutionGone and ApiError.
        """
        hold = SpecHold(spec=None, weight=0)
        if record.weight > LARGE_BYTES:
            hold.weight = min(record.weight * _COPIES, self.in_use_limit)
            await self._reserve(hold.weight)
        try:
            hold.spec = record.spec if record.spec is not None else await self._read(record)
        except BaseException:
            self.release(hold)
            raise
        return hold

    def open(self, record: ExecutionRecord) -> "SpecInUse":
        """Return the spec of a record to use it in a context. Nothing is in memory yet."""
        return SpecInUse(cache=self, record=record)

    def release(self, hold: SpecHold) -> None:
        """Release a spec. Repeated releases change nothing."""
        self._in_use -= hold.weight
        hold.spec, hold.weight = None, 0
        while self._waiting and self._in_use + self._waiting[0][0] <= self.in_use_limit:
            weight, future = self._waiting.popleft()
            if not future.done():
                self._in_use += weight
                future.set_result(None)

    def _discard(self, uid: str) -> None:
        weight, record = self._kept.pop(uid)
        self._used -= weight
        record.discard_spec()

    async def _reserve(self, weight: int) -> None:
        if not self._waiting and self._in_use + weight <= self.in_use_limit:
            self._in_use += weight
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((weight, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(SpecHold(spec=None, weight=weight))
            raise

    async def _read(self, record: ExecutionRecord) -> Object:
        body = await self.api.get_execution(record.namespace, record.name)
        if body is None or body["metadata"]["uid"] != record.uid:
            raise ExecutionGone
        record.observe(body)
        spec: Object = body.get("spec") or {}
        if spec_digest(spec) != record.digest:
            record.changed = record.list_changes(spec)
        return spec


@dataclass(kw_only=True, eq=False)
class SpecInUse:
    """The whole spec of one execution while it is admitted, bound and sent. Parsed once, unless it is released.

    As a context manager it is released at the end. It is also released for a wait, since thousands may wait, and once
    the sandbox has the job.
    """

    cache: SpecCache
    record: ExecutionRecord
    _hold: SpecHold | None = None
    _parsed: CodeExecutionSpec | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    async def load(self) -> CodeExecutionSpec:
        """Return the spec. Read it if it was dropped or released.

        Raises EndedBeforeRun if it is invalid or the execution must not be bound, and what SpecCache raises.
        """
        if self._hold is None:
            self._hold = await self.cache.acquire(self.record)
        if self.record.phase is Phase.PENDING:
            check_still_wanted(self.record)
        if self._parsed is None:
            self._parsed = _parse(self.record, self._hold.spec)
        return self._parsed

    def release(self) -> None:
        """Release the memory. `load` may be called again."""
        if self._hold is not None:
            self.cache.release(self._hold)
        self._hold = self._parsed = None

    def discard(self) -> None:
        """Release the memory for good: the sandbox has the job. `load` reads a large spec again all the same."""
        self.release()
        self.cache.discard_if_large(self.record)


def check_still_wanted(record: ExecutionRecord) -> None:
    """Raise EndedBeforeRun if a cancellation is requested, or if the spec is not the one that was created."""
    if record.is_unwanted:
        raise EndedBeforeRun(build_cancellation(record.cancelled))
    if record.changed:
        names = " and ".join(f"spec.{name}" for name in record.changed)
        raise EndedBeforeRun(build_failure(Reason.REJECTED, f"{names} was changed after creation"))


def _parse(record: ExecutionRecord, spec: Object | None) -> CodeExecutionSpec:
    try:
        return CodeExecutionSpec.model_validate(spec)
    except ValidationError as error:
        if record.phase is Phase.PENDING:
            found = field_errors(error, CodeExecutionSpec)
            text = "; ".join(f"spec.{invalid.field}: {invalid.message}" for invalid in found)
        else:
            text = "the spec was changed after its binding and is invalid"
        raise EndedBeforeRun(build_failure(Reason.REJECTED, text)) from error
