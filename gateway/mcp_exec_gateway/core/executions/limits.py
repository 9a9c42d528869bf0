"""What callers may create, keep and read: limits of API keys and of namespaces."""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cachetools import LRUCache

from mcp_exec_api.code_execution import CodeExecutionSpec, PoolRef
from mcp_exec_api.constants import DEFAULT_LANGUAGE, DEFAULT_MAX_STORED, DEFAULT_MAX_STORED_BYTES
from mcp_exec_api.meta import FieldError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.util.token_bucket import TokenBucket
from mcp_exec_gateway.core.auth.callers import Caller, check_user
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field, too_many
from mcp_exec_gateway.core.pools import CachedPool, PoolCache, choose_pool
from mcp_exec_tools.patterns import TooManyPatterns, intersect

_MAX_NARROWED: Final = 256
"""As many patterns as `spec.tools` may have."""


def fit_spec(spec: CodeExecutionSpec, *, caller: Caller, pools: PoolCache) -> CodeExecutionSpec:
    """Return the spec within the limits of caller and pool; defaults that exceed a limit are lowered to it.

    Raises HttpProblem: 403 for a pool, tool or user that the caller may not use, 422 for a value beyond a limit.
    """
    named = spec.pool_ref.name if "pool_ref" in spec.model_fields_set else None
    pool = choose_pool(named, spec.language, caller=caller, pools=pools)
    check_tools(spec.tools, caller=caller)
    check_user(spec.user, caller=caller)
    fitted = _fit_language(_fit_timeout(spec, caller=caller, pool=pool), pool=pool)
    return _fit_priority(fitted, caller=caller)


def _fit_language(spec: CodeExecutionSpec, *, pool: CachedPool) -> CodeExecutionSpec:
    """Return the spec with its pool, and with the pool's language, so that no other pool ever runs it."""
    language = None if pool.language == DEFAULT_LANGUAGE else pool.language
    if spec.pool_ref.name == pool.name and language in (None, spec.language):
        return spec
    return spec.model_copy(update={"pool_ref": PoolRef(name=pool.name), "language": language or spec.language})


def check_tools(patterns: Iterable[str], *, caller: Caller) -> None:
    """Raise HttpProblem, a 403, if the caller may not use all tools that the patterns match."""
    allowed = caller.limits.known_tools
    if allowed is None:
        return
    limit = f"{caller.title} may use only {', '.join(caller.limits.tools or ()) or 'none'}"
    errors = [
        FieldError(field=f"tools.{number}", message=f"{pattern}: {limit}")
        for number, pattern in enumerate(patterns)
        if not allowed.cover(pattern)
    ]
    if errors:
        raise HttpProblem("forbidden", 403, f"{errors[0].field}: {errors[0].message}", errors=errors)


def narrow_tools(patterns: Sequence[str] | None, *, caller: Caller) -> list[str] | None:
    """Return patterns of the tools that a client has chosen and the caller may use; None stands for all.

    Raises HttpProblem: 403 if the caller may use none of those that were chosen, 422 if both together are too many.
    """
    allowed = caller.limits.known_tools
    if patterns is None or allowed is None:
        return caller.limits.tools if patterns is None else list(patterns)
    try:
        narrowed = intersect(patterns, allowed, limit=_MAX_NARROWED)
    except TooManyPatterns as error:
        limit = f"those of {caller.title} narrow them, and {error}; choose fewer, or name servers in them"
        raise invalid_field("tools", limit) from None
    if patterns and not narrowed:
        check_tools(patterns, caller=caller)
    return narrowed


def find_longest_timeout(caller: Caller, *, pools: PoolCache, pool: str) -> int | None:
    """Return the longest `timeoutSeconds` of a caller's execution in a pool, or None if there is no such pool."""
    found = pools.find(caller.namespace, pool)
    return None if found is None else min(_list_timeouts(caller, found))[0]


def _list_timeouts(caller: Caller, pool: CachedPool) -> list[tuple[int, str]]:
    limits = [(pool.max_timeout_seconds, f"pool {pool.name}")]
    if caller.limits.max_timeout_seconds is not None:
        limits.append((caller.limits.max_timeout_seconds, caller.title))
    return limits


def _fit_timeout(spec: CodeExecutionSpec, *, caller: Caller, pool: CachedPool) -> CodeExecutionSpec:
    seconds, owner = min(_list_timeouts(caller, pool))
    if spec.timeout_seconds <= seconds:
        return spec
    if "timeout_seconds" in spec.model_fields_set:
        message = f"{spec.timeout_seconds} is more than the {seconds} seconds that {owner} allows"
        raise invalid_field("timeoutSeconds", message)
    return spec.model_copy(update={"timeout_seconds": seconds})


def _fit_priority(spec: CodeExecutionSpec, *, caller: Caller) -> CodeExecutionSpec:
    highest = caller.limits.max_priority
    if highest is None or spec.priority.rank >= highest.rank:
        return spec
    if "priority" in spec.model_fields_set:
        message = f"{spec.priority} is higher than {highest}, the highest that {caller.title} allows"
        raise invalid_field("priority", message)
    return spec.model_copy(update={"priority": highest})


_BYTES_PER_SECOND: Final = 16 * 1024 * 1024
"""About 12 objects of maximal size, or 1,000 ordinary ones, which an API server reads with a tenth of a processor."""
_BURST_BYTES: Final = 64 * 1024 * 1024
_MIN_BYTES: Final = 16 * 1024
"""What a read costs at least: its request does, however small the object."""
_MAX_BUCKETS: Final = 10_000


@dataclass(kw_only=True)
class ReadLimiter:
    """Token buckets of bytes by namespace and caller, in this replica."""

    clock: Callable[[], float] = time.monotonic
    per_second: int = _BYTES_PER_SECOND
    burst: int = _BURST_BYTES
    _buckets: LRUCache[tuple[str, str], TokenBucket] = field(
        default_factory=lambda: LRUCache(maxsize=_MAX_BUCKETS), init=False
    )

    def take(self, caller: Caller, size: int) -> None:
        """Count a read of an object of so many bytes. Raises HttpProblem, a 429, if the caller read too much before."""
        now = self.clock()
        bucket = self._buckets.get((caller.namespace, caller.name))
        if bucket is None:
            bucket = TokenBucket(per_second=self.per_second, burst=self.burst)
            self._buckets[caller.namespace, caller.name] = bucket
        if not bucket.available(now):
            seconds = bucket.ready_at(now) - now
            detail = f"{caller.name} has read executions of more than {self.per_second // 2**20} MiB in each second"
            raise too_many(detail, kind="rate-limited", retry_after=max(math.ceil(seconds), 1))
        bucket.spend(max(size, _MIN_BYTES), now)


_METADATA_BYTES: Final = 2048
"""Bytes that labels, annotations and managed fields take, about."""
_RETRY_SECONDS: Final = 30
"""Seconds until a refused client should try again: finished executions are deleted one by one."""
_REMEDY: Final = (
    "finished executions count until they are deleted: give new ones a smaller ttlSecondsAfterFinished, "
    "delete those that you no longer need, or raise {limit} of {owner}"
)

_Owner = tuple[str, str | None]
"""A namespace, and one of its callers or None for all."""


def measure_spec(spec: Any) -> int:
    """Return the bytes that a new execution takes in the API server, about."""
    return len(json.dumps(spec)) + _METADATA_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stored:
    caller: str
    bytes: int
    counts: bool
    """Whether it counts: not if it only waits for the finalizers of others."""


@dataclass(kw_only=True)
class StoredExecutions:
    """All executions, finished ones included. The index calls `observe` for each change.

    The bytes are those that the operator measured; until it has seen an execution, those of its spec.
    """

    max_stored: int = DEFAULT_MAX_STORED
    """Maximum executions of a namespace."""
    max_stored_bytes: int = DEFAULT_MAX_STORED_BYTES
    """Maximum bytes of a namespace's executions."""
    _executions: dict[ObjectKey, _Stored] = field(default_factory=dict, init=False)
    _counts: Counter[_Owner] = field(default_factory=Counter, init=False)
    _bytes: Counter[_Owner] = field(default_factory=Counter, init=False)

    def observe(self, key: ObjectKey, execution: Object, *, caller: str) -> None:
        """Take in an execution as it is now. It stays with the caller who was first seen."""
        known = self._executions.get(key)
        measured = (execution.get("status") or {}).get("storedBytes")
        counts = "deletionTimestamp" not in execution["metadata"]
        if measured is None and known is not None:
            measured = known.bytes
        if measured is None:
            measured = measure_spec(execution.get("spec"))
        self.remove(key)
        stored = _Stored(caller=caller if known is None else known.caller, bytes=int(measured), counts=counts)
        self._executions[key] = stored
        self._add(key[0], stored, sign=1)

    def remove(self, key: ObjectKey) -> None:
        """Stop counting a deleted execution."""
        if (stored := self._executions.pop(key, None)) is not None:
            self._add(key[0], stored, sign=-1)

    def find_bytes(self, key: ObjectKey) -> int:
        """Return the bytes of an execution; 0 if it is unknown."""
        stored = self._executions.get(key)
        return 0 if stored is None else stored.bytes

    def check(self, caller: Caller, *, expected: int, expected_bytes: int, own: int, own_bytes: int) -> None:
        """Raise HttpProblem, a 429, if namespace or caller store as much as they may, or will with what is expected.

        `expected` and `expected_bytes` are of executions that are being created in the namespace, the new one
        included; `own` and `own_bytes` are the caller's part of it.
        """
        namespace, limits = caller.namespace, caller.limits
        chart = "the chart"
        self._check((namespace, None), expected, self.max_stored, what="maxStored", owner=chart)
        self._check_bytes((namespace, None), expected_bytes, self.max_stored_bytes, owner=chart)
        if limits.max_stored is not None:
            self._check((namespace, caller.label), own, limits.max_stored, what="maxStored", owner=caller.title)
        if limits.max_stored_bytes is not None:
            self._check_bytes((namespace, caller.label), own_bytes, limits.max_stored_bytes, owner=caller.title)

    def _check(self, who: _Owner, more: int, limit: int, *, what: str, owner: str) -> None:
        if (count := self._counts[who]) + more > limit:
            raise _build_refusal(f"{_name(who)} stores {count} executions of {limit}", limit=what, owner=owner)

    def _check_bytes(self, who: _Owner, more: int, limit: int, *, owner: str) -> None:
        if (size := self._bytes[who]) + more > limit:
            detail = f"{_name(who)} stores {size} bytes of executions of {limit}, and this one has {more}"
            raise _build_refusal(detail, limit="maxStoredBytes", owner=owner)

    def _add(self, namespace: str, stored: _Stored, *, sign: int) -> None:
        for owner in ((namespace, None), (namespace, stored.caller)) if stored.counts else ():
            self._counts[owner] += sign
            self._bytes[owner] += sign * stored.bytes
            if not self._counts[owner]:
                del self._counts[owner], self._bytes[owner]


def _name(who: _Owner) -> str:
    return f"the namespace {who[0]}" if who[1] is None else f"the caller {who[1]}"


def _build_refusal(detail: str, *, limit: str, owner: str) -> HttpProblem:
    remedy = _REMEDY.format(limit=limit, owner=owner)
    return too_many(f"{detail}, which is {limit}; {remedy}", kind="stored", retry_after=_RETRY_SECONDS)
