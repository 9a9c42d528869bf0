"""Reflector: a local copy of all objects of one kind, filled by a list and kept current by a watch.

A broken watch is opened again. A new list replaces the copy, so objects deleted in the meantime are reported as
deleted. Lists are read object by object: the reflector holds one object and what `transform` left of the others.

With `on_begin` it neither lists nor keeps anything, and only passes on what its watch reports.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.pages import TableRow
from mcp_exec_common.util.backoff import delays

log = logging.getLogger(__name__)

_MAX_REFUSALS: Final = 5
"""Answers 429 in a row that are no reason for a warning."""
_FIRST_DELAY: Final = 0.1
_LAST_DELAY: Final = 5.0
_SHORT_WATCH_SECONDS: Final = 1.0
NO_OBJECT: Final = "metadata.name=-"
"""Field selector that no object matches: `-` is no name. A list with it has the resource version alone."""

ObjectKey = tuple[str, str]
"""Namespace and name."""


def object_key(item: Object) -> ObjectKey:
    """Return the namespace and name of an object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def find_unsynced(reflectors: Mapping[str, "Reflector"]) -> list[str]:
    """Return the names of the required reflectors that have not read their first list."""
    return [name for name, each in reflectors.items() if each.required and not each.synced.is_set()]


@dataclass(kw_only=True)
class Reflector:
    """Copy of the objects at one path. One task calls `on_change(object, deleted)` in order; it must not block."""

    kube: KubeClient
    path: str
    older_path: str = ""
    """Path in an older version of the API. A server that does not serve one of both, serves the other."""
    on_change: Callable[[Object, bool], None] | None = None
    selector: str = ""
    """Label selector."""
    fields: str = ""
    """Field selector."""
    transform: Callable[[Object], Object] = lambda item: item
    """Reduces an object to what the copy needs, so that large fields take no memory."""
    from_row: Callable[[TableRow], Object] | None = None
    """Builds an object from a row, if lists are read as tables because objects are large. Watches bring whole ones."""
    on_begin: Callable[[], None] | None = None
    """Called when a watch begins. It reports none of the objects that exist: who gives this function lists them then,
    and finds those that were deleted meanwhile. Must not block."""
    required: bool = True
    """Whether the process is ready only after the first list. False for a kind that a cluster may lack."""
    items: dict[ObjectKey, Object] = field(default_factory=dict)
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the first list."""
    refused: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the last request was refused: rights are missing, or were deleted with the namespace."""
    _outdated: bool = False
    """Whether to list again although the watch works."""
    _watching: asyncio.Timeout | None = None
    """The present watch."""

    def relist(self) -> None:
        """List again, so that `on_change` gets every object once more: what it decides by has changed."""
        self._outdated = True
        if self._watching is not None:
            self._watching.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def run_in_background(self) -> AsyncIterator["Reflector"]:
        """Run the reflector in its own task inside the context. The task starts again if `on_change` raises."""
        task = asyncio.create_task(self._run_with_restarts(), name=f"reflector {self.path}")
        try:
            yield self
        finally:
            while not task.done():  # before Python 3.12, wait_for can lose a cancellation
                task.cancel()
                await asyncio.wait({task}, timeout=1)

    async def run(self) -> None:
        """List and watch until cancelled. Retry API errors with a growing delay; raise errors of `on_change`."""
        pauses, version, refusals = _pauses(), "", 0
        while True:
            try:
                if self._outdated or not version:
                    self._outdated = False
                    version = await self._relist()
                    continue  # it may be outdated already
                began = asyncio.get_running_loop().time()
                async with (
                    self._until_outdated(),
                    aclosing(
                        self.kube.watch(self.path, resource_version=version, selector=self.selector, fields=self.fields)
                    ) as events,
                ):
                    async for event in events:
                        version = event["object"]["metadata"]["resourceVersion"]
                        pauses, refusals = _pauses(), 0
                        if event["type"] != "BOOKMARK":
                            self._apply(event["object"], deleted=event["type"] == "DELETED")
                        del event  # before the next one is parsed
                # avoids a tight loop if the server ends each watch at once
                if asyncio.get_running_loop().time() - began < _SHORT_WATCH_SECONDS:
                    await asyncio.sleep(_FIRST_DELAY)
            except ApiError as error:
                if error.code == 404 and self.older_path:
                    log.info("the server does not serve %s, listing %s", self.path, self.older_path)
                    self.path, self.older_path = self.older_path, self.path
                else:
                    # the API server begins to serve a definition that is new or was changed
                    refusals = refusals + 1 if error.code == 429 else _MAX_REFUSALS + 1
                    level = logging.INFO if refusals <= _MAX_REFUSALS else logging.WARNING
                    log.log(level, "the watch of %s failed, listing again: %s", self.path, error)
                if error.code == 403:
                    self.refused.set()
                version = ""
                await asyncio.sleep(next(pauses))
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                log.warning("the watch of %s failed: %s %s", self.path, type(error).__name__, error)
                await asyncio.sleep(next(pauses))

    @asynccontextmanager
    async def _until_outdated(self) -> AsyncIterator[None]:
        """End the watch in the context, without an error, when the list is outdated."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._watching = limit
                yield
        except TimeoutError:
            if not limit.expired():  # of the connection
                raise
        finally:
            self._watching = None

    async def _run_with_restarts(self) -> None:
        for pause in _pauses():
            try:
                await self.run()
            except Exception:
                # nothing awaits this task, so its end would go unnoticed
                log.exception("the reflector of %s failed and starts again", self.path)
            await asyncio.sleep(pause)

    async def _relist(self) -> str:
        keys: set[ObjectKey] = set()

        def take(item: Object) -> None:
            keys.add(object_key(item))
            self._apply(item, deleted=False)

        if self.on_begin is not None:
            version = await self.kube.scan(self.path, take, selector=self.selector, fields=NO_OBJECT)
            self.on_begin()
        elif (from_row := self.from_row) is not None:
            version = await self.kube.scan_table(self.path, lambda row: take(from_row(row)))
        else:
            version = await self.kube.scan(self.path, take, selector=self.selector, fields=self.fields)
        for missing in [key for key in self.items if key not in keys]:
            self._apply(self.items[missing], deleted=True)
        self.synced.set()
        self.refused.clear()
        return version

    def forget(self) -> None:
        """Report every object as deleted, once the reflector has ended."""
        for item in list(self.items.values()):
            self._apply(item, deleted=True)

    def _apply(self, item: Object, *, deleted: bool) -> None:
        if deleted:
            self.items.pop(object_key(item), None)
        elif self.on_begin is None:
            self.items[object_key(item)] = self.transform(item)
        if self.on_change is not None:
            self.on_change(item, deleted)


def _pauses() -> Iterator[float]:
    return delays(first=_FIRST_DELAY, last=_LAST_DELAY)
