"""What the gateway knows of all executions: a lean copy of each, and who waits for which.

One watch per namespace feeds it, however many requests wait. The copy has no code and no output: it is there to
count, to tell what is under way and to wake who waits; answers carry the object of the event itself, or a fresh one.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.constants import EXECUTIONS, LABEL_CALLER
from mcp_exec_api.execution_state import is_finished
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector, object_key
from mcp_exec_gateway.http.problems import too_many

_UNSEEN_SECONDS: Final = 30.0
"""How long a creation counts that no watch has shown: by then the object is known, or was never made."""
_KEPT: Final = ("name", "namespace", "uid", "resourceVersion")

Predicate = Callable[[Object], bool]


class Gone(Exception):
    """The execution was deleted while somebody waited for it."""


class Released(Exception):
    """The process stops, so nobody waits any longer."""


def is_bound(execution: Object) -> bool:
    """Whether it has a pod, or ended."""
    return bool((execution.get("status") or {}).get("podName")) or is_finished(execution)


def lean(execution: Object) -> Object:
    """What the copy keeps of an execution."""
    metadata = execution["metadata"]
    return {
        "metadata": {
            **{name: metadata[name] for name in _KEPT if name in metadata},
            "labels": {LABEL_CALLER: _caller_of(execution)},
        },
        "status": {"phase": str((execution.get("status") or {}).get("phase") or Phase.PENDING)},
    }


def _caller_of(execution: Object) -> str:
    return str((execution["metadata"].get("labels") or {}).get(LABEL_CALLER, ""))


@dataclass(kw_only=True)
class Executions:
    """Counts and waits. `on_change` is called by the reflectors, for each change in order."""

    max_waits: int
    clock: Callable[[], float] = time.monotonic
    waiting: int = field(default=0, init=False)
    """Waits that are under way."""
    _closed: bool = field(default=False, init=False)
    _waits: dict[ObjectKey, list[tuple[Predicate, asyncio.Future[Object]]]] = field(default_factory=dict, init=False)
    _active: dict[tuple[str, str], set[str]] = field(default_factory=dict, init=False)
    _unseen: dict[ObjectKey, tuple[str, float]] = field(default_factory=dict, init=False)

    def reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """What feeds this with one namespace's executions."""
        path = custom_resource_path(EXECUTIONS, namespace=namespace)
        return Reflector(kube=kube, path=path, on_change=self.on_change, transform=lean)

    def on_change(self, execution: Object, deleted: bool) -> None:
        """Takes note of one change."""
        key = object_key(execution)
        self._unseen.pop(key, None)
        self._count(key, execution, under_way=not deleted and not is_finished(execution))
        for predicate, future in self._waits.get(key, ()):
            if future.done():
                continue
            if deleted:
                _fail(future, Gone(key[1]))
            elif predicate(execution):
                future.set_result(execution)

    def _count(self, key: ObjectKey, execution: Object, *, under_way: bool) -> None:
        owner = (key[0], _caller_of(execution))
        names = self._active.get(owner)
        if under_way:
            self._active.setdefault(owner, set()).add(key[1])
        elif names is not None:
            names.discard(key[1])
            if not names:
                del self._active[owner]

    @contextmanager
    def until(self, key: ObjectKey, predicate: Predicate) -> Iterator[asyncio.Future[Object]]:
        """A future of an execution's first state that the predicate holds for; it may fail with Gone or Released.

        It need not exist yet, so that who creates it can wait from before its creation and miss nothing. A state that
        was there before is not told: who does not create it looks once, after this began. Raises Problem where too
        many wait.
        """
        if self.waiting >= self.max_waits:
            raise too_many(f"{self.waiting} requests wait for executions")
        future: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
        entry = (predicate, future)
        if self._closed:
            _fail(future, Released())
        self._waits.setdefault(key, []).append(entry)
        self.waiting += 1
        try:
            yield future
        finally:
            future.cancel()
            self.waiting -= 1
            entries = self._waits[key]
            entries.remove(entry)
            if not entries:
                del self._waits[key]

    def release(self) -> None:
        """Ends all waits with Released, and all that come later."""
        self._closed = True
        for entries in self._waits.values():
            for _, future in entries:
                if not future.done():
                    _fail(future, Released())

    def waits_for(self, key: ObjectKey) -> int:
        """How many wait for this execution."""
        return len(self._waits.get(key, ()))

    def expect(self, key: ObjectKey, label: str) -> None:
        """Counts an execution that is about to be created."""
        self._unseen[key] = (label, self.clock())

    def forget(self, key: ObjectKey) -> None:
        """Takes back `expect`: the execution was not created."""
        self._unseen.pop(key, None)

    def under_way(self, namespace: str, label: str) -> int:
        """How many executions of a caller did not end yet, those that are being created included."""
        oldest = self.clock() - _UNSEEN_SECONDS
        for key in [key for key, (_, since) in self._unseen.items() if since < oldest]:
            del self._unseen[key]
        unseen = sum(1 for (space, _), (owner, _) in self._unseen.items() if (space, owner) == (namespace, label))
        return unseen + len(self._active.get((namespace, label), ()))


def _fail(future: asyncio.Future[Object], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # nobody may be looking any more
