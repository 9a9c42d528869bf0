"""The parts that serve skills, built and run together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

from mcp_exec_api.constants import SKILLS
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.skills.folder import SkillFolder
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.skills.api import SkillApi
from mcp_exec_operator.skills.controller import SkillController
from mcp_exec_operator.skills.drafts import DraftWriter
from mcp_exec_operator.skills.index import SkillIndex
from mcp_exec_operator.skills.resolver import CodeCache, SkillResolver
from mcp_exec_operator.skills.shipped import ShippedSkills

_FLUSH_SECONDS: Final = 3.0
"""Longest time in which uses are written at the end."""


@dataclass(kw_only=True, eq=False)
class SkillComponent:
    """All parts of the operator that serve skills."""

    kube: KubeClient
    namespaces: tuple[str, ...]
    index: SkillIndex
    resolver: SkillResolver
    controller: SkillController
    drafts: DraftWriter
    shipped: ShippedSkills

    @classmethod
    def create(
        cls,
        *,
        kube: KubeClient,
        namespaces: tuple[str, ...],
        key: bytes,
        folders: tuple[SkillFolder, ...],
        metrics: Metrics,
    ) -> Self:
        """Build all parts; nothing runs yet. `folders` are the release's own skills."""
        api, attestor = SkillApi(kube=kube, metrics=metrics), Attestor(key=key)
        index = SkillIndex(attestor=attestor, synced={namespace: asyncio.Event() for namespace in namespaces})
        return cls(
            kube=kube,
            namespaces=namespaces,
            index=index,
            resolver=SkillResolver(index=index, codes=CodeCache(api=api)),
            controller=SkillController(api=api, index=index),
            drafts=DraftWriter(api=api, index=index, attestor=attestor),
            shipped=ShippedSkills(api=api, index=index, attestor=attestor, folders=folders),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch skills while the context lasts, then write the uses that are not written yet."""
        async with AsyncExitStack() as stack:
            for namespace in self.namespaces:
                reflector = Reflector(
                    kube=self.kube,
                    path=custom_resource_path(SKILLS, namespace=namespace),
                    on_change=self.controller.observe,
                    transform=_strip_skill,
                    synced=self.index.synced[namespace],
                )
                await stack.enter_async_context(reflector.run_in_background())
                self.shipped.request(namespace)
            try:
                yield
            finally:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_FLUSH_SECONDS):
                        await self.controller.flush()


def _strip_skill(skill: Object) -> Object:
    """Return what a deletion missed by the watch has to name."""
    return {"metadata": {name: skill["metadata"].get(name, "") for name in ("namespace", "name", "uid")}}
