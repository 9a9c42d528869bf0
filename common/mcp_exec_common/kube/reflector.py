"""A reflector: a copy of all objects of one kind, kept by a list and a watch that starts again where it breaks.

After each list the copy is replaced, so an object that vanished while no watch stood is told as deleted.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object

log = logging.getLogger(__name__)

_FIRST_BACKOFF: Final = 0.1
_LAST_BACKOFF: Final = 5.0

Key = tuple[str, str]
"""Namespace and name."""


def key_of(item: Object) -> Key:
    """Namespace and name of an object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


@dataclass(kw_only=True)
class Reflector:
    """Follows one path. `on_change(object, deleted)` is called in order, from one task, and must not block."""

    kube: KubeClient
    path: str
    on_change: Callable[[Object, bool], None] | None = None
    selector: str = ""
    """A label selector."""
    fields: str = ""
    """A field selector."""
    transform: Callable[[Object], Object] = lambda item: item
    """What is kept of an object, so that large fields need not be."""
    items: dict[Key, Object] = field(default_factory=dict)
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the first list is in."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Reflector"]:
        """Runs the reflector in a task of its own while the context stands, again where `on_change` fails."""
        task = asyncio.create_task(self._run_again_and_again(), name=f"reflector {self.path}")
        try:
            yield self
        finally:
            while not task.done():  # a cancellation that meets another end of a wait may be lost before Python 3.12
                task.cancel()
                await asyncio.wait({task}, timeout=1)

    async def run(self) -> None:
        """Lists and watches until it is cancelled; errors of the API server are ridden out with a growing delay.

        Raises what `on_change` raises.
        """
        backoff = _FIRST_BACKOFF
        version = ""
        while True:
            try:
                if not version:
                    version = await self._relist()
                began = asyncio.get_running_loop().time()
                async with aclosing(
                    self.kube.watch(self.path, resource_version=version, selector=self.selector, fields=self.fields)
                ) as events:
                    async for event in events:
                        version = event["object"]["metadata"]["resourceVersion"]
                        backoff = _FIRST_BACKOFF
                        if event["type"] != "BOOKMARK":
                            self._apply(event["object"], deleted=event["type"] == "DELETED")
                # A server that ends each watch at once must not be asked in a tight loop.
                if asyncio.get_running_loop().time() - began < 1:
                    await asyncio.sleep(_FIRST_BACKOFF)
            except ApiError as error:
                log.warning("the watch of %s broke: %s", self.path, error)
                version = ""
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, _LAST_BACKOFF)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                log.warning("the watch of %s broke: %s %s", self.path, type(error).__name__, error)
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, _LAST_BACKOFF)

    async def _run_again_and_again(self) -> None:
        backoff = _FIRST_BACKOFF
        while True:
            try:
                await self.run()
            except Exception:
                # nobody awaits this task: that it ended would never be known
                log.exception("the watch of %s failed and begins again", self.path)
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, _LAST_BACKOFF)

    async def _relist(self) -> str:
        found, version = await self.kube.list(self.path, selector=self.selector, fields=self.fields)
        names = {key_of(item) for item in found}
        for gone in [key for key in self.items if key not in names]:
            self._apply(self.items[gone], deleted=True)
        for item in found:
            self._apply(item, deleted=False)
        self.synced.set()
        return version

    def _apply(self, item: Object, *, deleted: bool) -> None:
        if deleted:
            self.items.pop(key_of(item), None)
        else:
            self.items[key_of(item)] = self.transform(item)
        if self.on_change is not None:
            self.on_change(item, deleted)
