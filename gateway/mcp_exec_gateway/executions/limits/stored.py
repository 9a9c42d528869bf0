"""Number and bytes of all executions that the API server stores, by namespace and by caller, and their limits."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_exec_api.constants import DEFAULT_MAX_STORED, DEFAULT_MAX_STORED_BYTES
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.auth.callers import Caller
from mcp_exec_gateway.http.problems import HttpProblem, too_many

_METADATA_BYTES: Final = 2048
"""Bytes that labels, annotations and managed fields take, about."""
_RETRY_SECONDS: Final = 30
"""Seconds after which a refused client should try again: finished executions are deleted one by one."""
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
        if measured is None and known is not None:
            return
        if measured is None:
            measured = measure_spec(execution.get("spec"))
        self.remove(key)
        stored = _Stored(caller=caller if known is None else known.caller, bytes=int(measured))
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
        key = f"the API key {caller.name}"
        if limits.max_stored is not None:
            self._check((namespace, caller.label), own, limits.max_stored, what="maxStored", owner=key)
        if limits.max_stored_bytes is not None:
            self._check_bytes((namespace, caller.label), own_bytes, limits.max_stored_bytes, owner=key)

    def _check(self, who: _Owner, more: int, limit: int, *, what: str, owner: str) -> None:
        if (count := self._counts[who]) + more > limit:
            raise _build_refusal(f"{_name(who)} stores {count} executions of {limit}", limit=what, owner=owner)

    def _check_bytes(self, who: _Owner, more: int, limit: int, *, owner: str) -> None:
        if (size := self._bytes[who]) + more > limit:
            detail = f"{_name(who)} stores {size} bytes of executions of {limit}, and this one has {more}"
            raise _build_refusal(detail, limit="maxStoredBytes", owner=owner)

    def _add(self, namespace: str, stored: _Stored, *, sign: int) -> None:
        for owner in ((namespace, None), (namespace, stored.caller)):
            self._counts[owner] += sign
            self._bytes[owner] += sign * stored.bytes
            if not self._counts[owner]:
                del self._counts[owner], self._bytes[owner]


def _name(who: _Owner) -> str:
    return f"the namespace {who[0]}" if who[1] is None else f"the caller {who[1]}"


def _build_refusal(detail: str, *, limit: str, owner: str) -> HttpProblem:
    remedy = _REMEDY.format(limit=limit, owner=owner)
    return too_many(f"{detail}, which is {limit}; {remedy}", kind="stored", retry_after=_RETRY_SECONDS)
