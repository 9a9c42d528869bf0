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

    Those of the first namespaces make the process ready. A namespace that comes later is served once its reflectors
    have read their first list, and until then nothing waits for it: the rights in it may come later than its name.
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
            for namespace, built in self._of_namespaces.items():
                self._tasks[namespace] = group.create_task(_run(built), name=f"reflectors of {namespace}")
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

    async def _serve_soon(self, namespace: str) -> None:
        built = self._register(namespace)
        needed = [reflector for reflector in built.values() if reflector.required]
        for reflector in needed:
            reflector.required = False
        async with asyncio.TaskGroup() as group:
            group.create_task(_run(built))
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
