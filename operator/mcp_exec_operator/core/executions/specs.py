"""Specs of unfinished executions: kept in bounded memory, read again if they were discarded, and parsed once.

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
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, ExecutionGone, build_failure
from mcp_exec_operator.core.executions.record import ExecutionRecord

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
    """Specs of the records of all unfinished executions. If they take too much memory, the largest are discarded first.

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

    def keep(self, record: ExecutionRecord) -> None:
        """Keep the spec of a new record, and discard the largest specs if they take too much memory together."""
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

    async def reserve(self, weight: int) -> int:
        """Reserve memory for a spec of this weight. Return the reserved bytes, which `release` takes; 0 if it is small.

        A large spec waits until other large ones are released.
        """
        reserved = min(weight * _COPIES, self.in_use_limit) if weight > LARGE_BYTES else 0
        if not reserved or (not self._waiting and self._in_use + reserved <= self.in_use_limit):
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

    def _discard(self, uid: str) -> None:
        weight, record = self._kept.pop(uid)
        self._used -= weight
        record.discard_spec()


@dataclass(kw_only=True, eq=False)
class SpecInUse:
    """The whole spec of one execution while it is admitted, bound and sent. Parsed once, unless it is released.

    As a context manager it is released at the end. It is also released for a wait, since thousands may wait, and once
    the sandbox has the job.
    """

    cache: SpecCache
    record: ExecutionRecord
    _reserved: int = 0
    """Bytes of the spec that count against the memory of specs in use."""
    _spec: Object | None = None
    _parsed: CodeExecutionSpec | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    async def load(self) -> CodeExecutionSpec:
        """Return the spec, parsed.

        Raises EndedBeforeRun if it is invalid or the execution must not be bound, and what `read` raises.
        """
        spec, is_pending = await self.read(), self.record.phase is Phase.PENDING
        if is_pending:
            self.record.check_wanted()
        if self._parsed is None:
            self._parsed = _parse(spec, is_pending=is_pending)
        return self._parsed

    async def read(self) -> Object:
        """Return the spec as JSON data. Read it if it was discarded. Raises ExecutionGone and ApiError."""
        if self._spec is None:
            self._reserved = await self.cache.reserve(self.record.weight)
            try:
                self._spec = self.record.spec if self.record.spec is not None else await self._read_again()
            except BaseException:
                self.release()
                raise
        return self._spec

    def release(self) -> None:
        """Release the memory. `load` may be called again. Repeated calls change nothing."""
        reserved, self._reserved = self._reserved, 0
        self._spec = self._parsed = None
        self.cache.release(reserved)

    def discard(self) -> None:
        """Release the memory for good: the sandbox has the job. `load` reads a large spec again all the same."""
        self.release()
        self.cache.discard_if_large(self.record)

    async def _read_again(self) -> Object:
        body = await self.cache.api.get_execution(self.record.namespace, self.record.name)
        if body is None or body["metadata"]["uid"] != self.record.uid:
            raise ExecutionGone
        self.record.observe(body)
        spec: Object = body.get("spec") or {}
        if spec_digest(spec) != self.record.digest:
            self.record.changed = self.record.list_changes(spec)
        return spec


def _parse(spec: Object, *, is_pending: bool) -> CodeExecutionSpec:
    try:
        return CodeExecutionSpec.model_validate(spec)
    except ValidationError as error:
        if is_pending:
            found = field_errors(error, CodeExecutionSpec)
            text = "; ".join(f"spec.{invalid.field}: {invalid.message}" for invalid in found)
        else:
            text = "the spec was changed after its binding and is invalid"
        raise EndedBeforeRun(build_failure(Reason.REJECTED, text)) from error
