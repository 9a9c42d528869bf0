"""Cache of runs by their calls: those that have not ended, and those whose answer was not delivered."""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self

from mcp_exec_api.execution_state import is_finished, read_created_at
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_gateway.retries.marks import CallIdentity, Mark, read_holder_since

_MAX_RUNS: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class CalledRun:
    """One run, and the call that it answers."""

    key: ObjectKey
    call: CallIdentity
    created: float
    """Seconds from 1970 to its creation."""
    followed: float
    """Seconds from 1970 since which the present request follows it."""
    mark: Mark | None

    @classmethod
    def from_object(cls, execution: Object, *, call: CallIdentity, mark: Mark | None) -> Self:
        """Return the run of an execution."""
        created = _read_seconds(read_created_at(execution))
        followed = read_holder_since(execution["metadata"])
        return cls(
            key=object_key(execution),
            call=call,
            created=created,
            followed=created if followed is None else followed,
            mark=mark,
        )


@dataclass(kw_only=True)
class CallCache:
    """Runs by namespace and digest of their calls. `observe` gets each change. The newest runs are kept."""

    _runs: OrderedDict[ObjectKey, CalledRun] = field(default_factory=OrderedDict, init=False)
    _keys: dict[tuple[str, str], dict[ObjectKey, None]] = field(default_factory=dict, init=False)
    _leaving: set[ObjectKey] = field(default_factory=set, init=False)
    """Runs that this replica is about to mark."""
    _changes: dict[tuple[str, str], list[asyncio.Event]] = field(
        default_factory=lambda: defaultdict(list[asyncio.Event]), init=False
    )

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._runs)

    def observe(self, execution: Object, *, deleted: bool = False) -> None:
        """Take in an execution."""
        key, metadata = object_key(execution), execution["metadata"]
        old = self._runs.get(key)
        call, mark = (None, None) if deleted else (CallIdentity.read(metadata), Mark.read(metadata))
        if call is not None and (mark is not None or not is_finished(execution)):
            self._remove(key)
            self._runs[key] = CalledRun.from_object(execution, call=call, mark=mark)
            self._keys.setdefault((key[0], call.digest), {})[key] = None
            if len(self._runs) > _MAX_RUNS:
                self._remove(next(iter(self._runs)))
        elif old is not None:
            self._remove(key)
        else:
            return
        self._announce((key[0], (call or (old and old.call) or CallIdentity(digest="")).digest))

    def _remove(self, key: ObjectKey) -> None:
        run = self._runs.pop(key, None)
        if run is None:
            return
        index = (key[0], run.call.digest)
        self._keys[index].pop(key, None)
        if not self._keys[index]:
            del self._keys[index]

    def find(self, namespace: str, digest: str) -> list[CalledRun]:
        """Return the runs of a call, newest first."""
        return [self._runs[key] for key in reversed(self._keys.get((namespace, digest), {}))]

    def get(self, key: ObjectKey) -> CalledRun | None:
        """Return a run, if it is here."""
        return self._runs.get(key)

    @contextmanager
    def leaving(self, key: ObjectKey) -> Iterator[None]:
        """Make repeated calls wait while this replica marks a run."""
        self._leaving.add(key)
        try:
            yield
        finally:
            self._leaving.discard(key)
            if (run := self._runs.get(key)) is not None:
                self._announce((key[0], run.call.digest))

    def is_leaving(self, key: ObjectKey) -> bool:
        """Return whether this replica is about to mark a run."""
        return key in self._leaving

    async def wait_while(self, unsettled: Callable[[], bool], index: tuple[str, str], *, seconds: float) -> None:
        """Wait until a condition of the runs of one call no longer holds, for so many seconds at most."""
        change = asyncio.Event()
        self._changes[index].append(change)
        try:
            async with asyncio.timeout(seconds):
                while unsettled():
                    await change.wait()
                    change.clear()
        except TimeoutError:
            return
        finally:
            self._changes[index].remove(change)
            if not self._changes[index]:
                del self._changes[index]

    def _announce(self, index: tuple[str, str]) -> None:
        for change in self._changes.get(index, ()):
            change.set()


def _read_seconds(moment: str) -> float:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return 0.0
