"""Reflectors of the served namespaces, which come and go with them while a process runs."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_common.process.namespaces import ServedNamespaces, read_namespaces

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class NamespaceReflectors:
    """The reflectors of each served namespace.

    Those of the first namespaces make the process ready. A namespace that comes later, or whose first list is refused,
    is served once its reflectors have read their first list, and until then nothing waits for it: the rights in it may
    come later than its name, and whoever takes them away must not stop the service of others.
    """

    served: ServedNamespaces
    release_namespace: str
    build: Callable[[str], Mapping[str, Reflector]]
    """Returns the reflectors of a namespace by a description."""
    reflectors: dict[str, Reflector]
    """Reflectors of the process by their descriptions: those of served namespaces are added and removed."""
    _of_namespaces: dict[str, Mapping[str, Reflector]] = field(default_factory=dict, init=False)
    _tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for namespace in self.served:
            self._register(namespace)

    def _register(self, namespace: str) -> Mapping[str, Reflector]:
        self._of_namespaces[namespace] = built = self.build(namespace)
        self.reflectors.update(built)
        return built

    async def run(self, folder: MountedFolder | None = None) -> None:
        """Run the reflectors of the served namespaces, those that `folder` names from time to time, for ever.

        An error of a reflector ends all.
        """
        async with asyncio.TaskGroup() as group:
            for namespace in self._of_namespaces:
                self._tasks[namespace] = group.create_task(
                    self._serve_at_once(namespace), name=f"reflectors of {namespace}"
                )
            if folder is not None:
                await folder.follow(
                    lambda entries: self._follow(
                        group, read_namespaces(entries, release_namespace=self.release_namespace)
                    )
                )

    def _follow(self, group: asyncio.TaskGroup, names: tuple[str, ...]) -> None:
        for namespace in self._tasks.keys() - set(names):
            self._remove(namespace)
        for namespace in names:
            if namespace not in self._tasks:
                self._tasks[namespace] = group.create_task(
                    self._serve_soon(namespace), name=f"reflectors of {namespace}"
                )

    async def _serve_at_once(self, namespace: str) -> None:
        built = self._of_namespaces[namespace]
        needed = [reflector for reflector in built.values() if reflector.required]
        async with asyncio.TaskGroup() as group:
            group.create_task(_run(built))
            if await _is_refused(needed):
                log.error("namespace %s is not served until its objects can be listed", namespace)
                self.served.remove(namespace)
                await self._add_once_synced(namespace, needed)

    async def _serve_soon(self, namespace: str) -> None:
        built = self._register(namespace)
        needed = [reflector for reflector in built.values() if reflector.required]
        async with asyncio.TaskGroup() as group:
            group.create_task(_run(built))
            await self._add_once_synced(namespace, needed)

    async def _add_once_synced(self, namespace: str, needed: list[Reflector]) -> None:
        """Serve a namespace once these reflectors have read their first list. The process is ready without them."""
        for reflector in needed:
            reflector.required = False
        for reflector in needed:
            await reflector.synced.wait()
        self.served.add(namespace)
        log.info("namespace %s is served from now on", namespace)

    def _remove(self, namespace: str) -> None:
        self.served.remove(namespace)
        self._tasks.pop(namespace).cancel()
        for description, reflector in self._of_namespaces.pop(namespace, {}).items():
            self.reflectors.pop(description, None)
            reflector.forget()
        log.info("namespace %s is not served any more", namespace)


async def _run(reflectors: Mapping[str, Reflector]) -> None:
    async with asyncio.TaskGroup() as group:
        for description, reflector in reflectors.items():
            group.create_task(reflector.run(), name=description)


async def _is_refused(reflectors: list[Reflector]) -> bool:
    """Return True as soon as the first list of one is refused, or False once all have read theirs."""
    async with asyncio.TaskGroup() as group:
        refusals = [group.create_task(each.refused.wait()) for each in reflectors]
        synced = group.create_task(_wait_until_synced(reflectors))
        await asyncio.wait({*refusals, synced}, return_when=asyncio.FIRST_COMPLETED)
        refused = not synced.done()
        for task in (*refusals, synced):
            task.cancel()
    return refused


async def _wait_until_synced(reflectors: list[Reflector]) -> None:
    for reflector in reflectors:
        await reflector.synced.wait()
