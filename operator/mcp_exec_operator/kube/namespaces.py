"""Deletion of served namespaces.

Kubernetes waits five seconds between the request to delete a namespace and the deletion of what is in it, and before
version 1.33 it then deletes NetworkPolicies and pods in any order. In these seconds the operator ends the sandboxes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp

from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.kube.api import get_or_none

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 1.0
_NO_ACCESS_SECONDS: Final = 10.0
"""Pause while the namespace cannot be read: the rights in a namespace are deleted with it."""

OnDeletion = Callable[[str, bool], None]
"""Receives a namespace and whether it is being deleted. Must not block."""


@dataclass(kw_only=True, eq=False)
class NamespaceFollower:
    """Reports when a namespace is being deleted, and when it exists again."""

    kube: KubeClient
    namespace: str
    on_deletion: OnDeletion

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the namespace while the context lasts."""
        task = asyncio.create_task(self._run(), name=f"namespace {self.namespace}")
        try:
            yield
        finally:
            while not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1)

    async def _run(self) -> None:
        path = resource_path("namespaces", name=self.namespace)
        # a namespace of its own is all that a Role in it allows to watch; the path with a field selector needs a
        # ClusterRole
        watched = path.replace("/api/v1/", "/api/v1/watch/", 1)
        while True:
            pause = _PAUSE_SECONDS
            try:
                body = await get_or_none(self.kube, path)
                if body is not None:
                    self._report(body)
                    version = body["metadata"]["resourceVersion"]
                    async with aclosing(self.kube.watch(watched, resource_version=version)) as events:
                        async for event in events:
                            if event["type"] != "BOOKMARK":
                                self._report(event["object"], deleted=event["type"] == "DELETED")
            except (ApiError, aiohttp.ClientError, TimeoutError, ValueError) as error:
                log.info("the namespace %s cannot be watched: %s", self.namespace, error)
                pause = _NO_ACCESS_SECONDS if isinstance(error, ApiError) and error.code == 403 else _PAUSE_SECONDS
            await asyncio.sleep(pause)

    def _report(self, body: Object, *, deleted: bool = False) -> None:
        self.on_deletion(self.namespace, deleted or bool(body["metadata"].get("deletionTimestamp")))


@asynccontextmanager
async def follow_namespaces(
    *, kube: KubeClient, namespaces: tuple[str, ...], on_deletion: OnDeletion
) -> AsyncIterator[None]:
    """Report the deletion of these namespaces to `on_deletion` while the context lasts."""
    async with AsyncExitStack() as stack:
        for namespace in namespaces:
            follower = NamespaceFollower(kube=kube, namespace=namespace, on_deletion=on_deletion)
            await stack.enter_async_context(follower.running())
        yield
