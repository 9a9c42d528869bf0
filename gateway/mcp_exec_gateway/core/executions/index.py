"""Index of all executions: who is active, and which requests wait for which execution.

One watch per namespace feeds it, however many requests wait. It keeps neither code nor output, only what counting,
waking and lists need, and lists tables without them. A wait returns the object of the watch event itself if there is
memory.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.code_execution import Phase, is_finished
from mcp_exec_api.constants import EXECUTIONS, GROUP
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector, object_key
from mcp_exec_common.util.weight import weigh
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.executions.limits import StoredExecutions
from mcp_exec_gateway.core.executions.lists import ExecutionEntry, ExecutionLists, read_row
from mcp_exec_gateway.core.extensions import ChangeObserver
from mcp_exec_gateway.core.http.limits import MemoryBudget, Reservation
from mcp_exec_gateway.core.http.problems import too_many

ANNOTATION_IDEMPOTENCY: Final = f"{GROUP}/idempotency-key"
"""Digest of namespace, caller and Idempotency-Key."""
_MAX_KEYS: Final = 50_000
_DIGEST_LENGTH: Final = 64


@dataclass(kw_only=True)
class RequestKeys:
    """Name of the execution that belongs to each Idempotency-Key, as far as this replica has seen it.

    The name is enough to make a retry of the same request safe at all replicas. This cache is for a key that is used
    again with another name. It keeps the newest keys; such a use of a dropped key is not noticed.
    """

    _names: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict, init=False)
    """Names by namespace and digest of the key."""

    def observe(self, execution: Object, *, deleted: bool) -> None:
        """Take in an execution."""
        digest = (execution["metadata"].get("annotations") or {}).get(ANNOTATION_IDEMPOTENCY)
        if not isinstance(digest, str) or len(digest) != _DIGEST_LENGTH:
            return
        key = object_key(execution)
        if not deleted:
            self.add(key, digest)
        elif self._names.get((key[0], digest)) == key[1]:
            del self._names[key[0], digest]

    def add(self, key: ObjectKey, digest: str) -> bool:
        """Take in an execution that exists or is about to. Return whether its key was new: the first name counts."""
        is_new = (key[0], digest) not in self._names
        self._names.setdefault((key[0], digest), key[1])
        if len(self._names) > _MAX_KEYS:
            self._names.popitem(last=False)
        return is_new

    def discard(self, key: ObjectKey, digest: str) -> None:
        """Take back an execution that was not created."""
        if self._names.get((key[0], digest)) == key[1]:
            del self._names[key[0], digest]

    def find(self, namespace: str, digest: str) -> str | None:
        """Return the name of the execution that belongs to a key."""
        return self._names.get((namespace, digest))

    def count(self) -> int:
        """Return the number of keys."""
        return len(self._names)


_EXPECTATION_SECONDS: Final = 30.0
"""Time that a creation counts without a watch event: after it, the object was seen or was never created."""
_METADATA: Final = ("name", "namespace", "uid", "resourceVersion")

Predicate = Callable[[Object], bool]


class ExecutionDeleted(Exception):
    """The execution was deleted during a wait for it."""


class ShuttingDown(Exception):
    """The gateway is shutting down and ends all waits."""


def is_bound(execution: Object) -> bool:
    """Return whether the execution has a pod or has ended."""
    return bool((execution.get("status") or {}).get("podName")) or is_finished(execution)


def strip_execution(execution: Object) -> Object:
    """Return the part of an execution that the reflector keeps."""
    metadata = execution["metadata"]
    digest = (metadata.get("annotations") or {}).get(ANNOTATION_IDEMPOTENCY)
    return {
        "metadata": {
            **{name: metadata[name] for name in _METADATA if name in metadata},
            **({} if digest is None else {"annotations": {ANNOTATION_IDEMPOTENCY: str(digest)[:64]}}),
        },
        "status": {"phase": str((execution.get("status") or {}).get("phase") or Phase.PENDING)},
    }


@dataclass(kw_only=True, eq=False)
class _Wait:
    predicate: Predicate
    future: asyncio.Future[Object | None]
    memory: Reservation
    """Memory of the future's object."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Expectation:
    caller: str
    bytes: int
    since: float


@dataclass(kw_only=True)
class ExecutionIndex:
    """Active executions by caller, and waits by execution. The reflectors call `on_change` for each change in order."""

    max_waits: int
    """Maximum number of concurrent waits."""
    attestor: Attestor
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    """Memory of the objects that waits return."""
    clock: Callable[[], float] = time.monotonic
    request_keys: RequestKeys = field(default_factory=RequestKeys, init=False)
    """Executions by Idempotency-Key."""
    lists: ExecutionLists = field(default_factory=ExecutionLists)
    """Executions in the order of their creation."""
    stored: StoredExecutions = field(default_factory=StoredExecutions)
    """Number and bytes of all executions."""
    observers: Sequence[ChangeObserver] = ()
    """What features do at each change."""
    wait_count: int = field(default=0, init=False)
    """Number of waits now."""
    _shutting_down: bool = field(default=False, init=False)
    _waits: dict[ObjectKey, list["_Wait"]] = field(default_factory=dict, init=False)
    _active: dict[ObjectKey, str] = field(default_factory=dict, init=False)
    """Caller of each unfinished execution, as it was first seen: a label that is changed later moves no execution."""
    _active_counts: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    """Number of unfinished executions by namespace and caller."""
    _expected: dict[ObjectKey, _Expectation] = field(default_factory=dict, init=False)
    """Creations that no watch event has shown yet."""

    def build_reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """Build the reflector of one namespace's executions."""
        path = custom_resource_path(EXECUTIONS, namespace=namespace)
        return Reflector(kube=kube, path=path, on_change=self.on_change, transform=strip_execution, from_row=read_row)

    def on_change(self, execution: Object, deleted: bool) -> None:
        """Observe one change."""
        key = object_key(execution)
        self._expected.pop(key, None)
        self.request_keys.observe(execution, deleted=deleted)
        for observe in self.observers:
            observe(execution, deleted=deleted)
        if deleted:
            self.lists.remove(*key)
            self.stored.remove(key)
        else:
            caller = self.attestor.read_listed_caller(execution["metadata"])
            self.stored.observe(key, execution, caller=caller)
            self.lists.put(key[0], ExecutionEntry.from_object(execution, caller=caller))
        self._update_active(key, execution, active=not deleted and not is_finished(execution))
        for wait in self._waits.get(key, ()):
            if wait.future.done():
                continue
            if deleted:
                _fail(wait.future, ExecutionDeleted(key[1]))
            elif wait.predicate(execution):
                is_whole = "spec" in execution
                fits = is_whole and wait.memory.resize(weigh(execution, limit=self.memory.limit))
                wait.future.set_result(execution if fits else None)

    def _update_active(self, key: ObjectKey, execution: Object, *, active: bool) -> None:
        if active and key not in self._active:
            self._active[key] = self._read_caller(execution)
            self._active_counts[key[0], self._active[key]] += 1
        elif not active and key in self._active:
            owner = (key[0], self._active.pop(key))
            self._active_counts[owner] -= 1
            if not self._active_counts[owner]:
                del self._active_counts[owner]

    def _read_caller(self, execution: Object) -> str:
        if "spec" in execution:
            return self.attestor.read_caller(execution)
        return self.attestor.read_listed_caller(execution["metadata"])

    @contextmanager
    def wait_for(self, key: ObjectKey, predicate: Predicate) -> Iterator[asyncio.Future[Object | None]]:
        """Yield a future of the first observed state of an execution that satisfies the predicate.

        The future yields None if the execution has to be read: the memory for waits is used up, or a list showed it.

        The execution need not exist yet, so that its creator can wait from before the creation and miss no event. A
        state from before the wait is not observed again: all others read the execution once after the wait starts.
        The future may fail with ExecutionDeleted or ShuttingDown. Raises HttpProblem if too many requests wait.
        """
        if self.wait_count >= self.max_waits:
            raise too_many(f"{self.wait_count} requests wait for executions, which is the limit of this replica")
        future: asyncio.Future[Object | None] = asyncio.get_running_loop().create_future()
        wait = _Wait(predicate=predicate, future=future, memory=Reservation(budget=self.memory, namespace=key[0]))
        if self._shutting_down:
            _fail(future, ShuttingDown())
        self._waits.setdefault(key, []).append(wait)
        self.wait_count += 1
        try:
            yield future
        finally:
            future.cancel()
            wait.memory.release()
            self.wait_count -= 1
            waits = self._waits[key]
            waits.remove(wait)
            if not waits:
                del self._waits[key]

    def shut_down(self) -> None:
        """End all present and future waits with ShuttingDown."""
        self._shutting_down = True
        for waits in self._waits.values():
            for wait in waits:
                if not wait.future.done():
                    _fail(wait.future, ShuttingDown())

    def has_waits(self, key: ObjectKey) -> bool:
        """Return whether any request waits for this execution."""
        return key in self._waits

    def add_expectation(self, key: ObjectKey, caller: str, *, stored_bytes: int = 0) -> None:
        """Count an execution as active and as stored before its creation."""
        self._expected[key] = _Expectation(caller=caller, bytes=stored_bytes, since=self.clock())

    def remove_expectation(self, key: ObjectKey) -> None:
        """Stop counting an execution that was not created."""
        self._expected.pop(key, None)

    def count_active(self, namespace: str, caller: str) -> int:
        """Return the number of a caller's unfinished executions, including creations in flight."""
        expected = sum(1 for each in self._list_expected(namespace) if each.caller == caller)
        return expected + self._active_counts[namespace, caller]

    def check_stored(self, caller: Caller, *, stored_bytes: int) -> None:
        """Raise HttpProblem, a 429, if there is no room for an execution of so many bytes."""
        expected = [(each.caller, each.bytes) for each in self._list_expected(caller.namespace)]
        expected.append((caller.label, stored_bytes))
        own = [size for owner, size in expected if owner == caller.label]
        self.stored.check(
            caller,
            expected=len(expected),
            expected_bytes=sum(size for _, size in expected),
            own=len(own),
            own_bytes=sum(own),
        )

    def _list_expected(self, namespace: str) -> list[_Expectation]:
        """Return the creations in flight in a namespace."""
        oldest = self.clock() - _EXPECTATION_SECONDS
        for key in [key for key, each in self._expected.items() if each.since < oldest]:
            del self._expected[key]
        return [each for (space, _), each in self._expected.items() if space == namespace]

    def count_all_active(self, namespace: str) -> int:
        """Return the number of a namespace's unfinished executions."""
        return sum(count for (space, _), count in self._active_counts.items() if space == namespace)


def _fail(future: asyncio.Future[Object | None], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # marks it as retrieved: the request may have stopped waiting
