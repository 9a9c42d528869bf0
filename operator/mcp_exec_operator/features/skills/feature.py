"""Skills in one namespace."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from mcp_exec_api.constants import SKILLS
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.skills.folder import read_folders
from mcp_exec_operator.cluster.kube.observations import strip
from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.features.skills.authoring import DraftWriter, ShippedSkills
from mcp_exec_operator.features.skills.controller import SkillController
from mcp_exec_operator.features.skills.index import SkillIndex
from mcp_exec_operator.features.skills.part import Skills
from mcp_exec_operator.features.skills.resolver import CodeCache, SkillResolver

_LAST_FLUSH_SECONDS: Final = 3.0
"""Longest wait for the last write of uses."""


class SkillsFeature(Feature):
    """Serves skills to executions, creates those that code saves, and those that the release brings."""

    def __init__(self, context: FeatureContext) -> None:
        """Build all parts, and read the folders of the release's own skills."""
        api, attestor, folder = context.api, context.attestor, context.settings.skills_folder
        self.namespace = context.namespace
        synced = asyncio.Event()
        self.index = SkillIndex(attestor=attestor, synced={context.namespace: synced})
        self.controller = SkillController(api=api, index=self.index)
        folders = read_folders(Path(folder)) if folder else ()
        self.shipped = ShippedSkills(api=api, index=self.index, attestor=attestor, folders=folders)
        self.executions = Skills(
            resolver=SkillResolver(index=self.index, codes=CodeCache(api=api)),
            drafts=DraftWriter(api=api, index=self.index, attestor=attestor),
            controller=self.controller,
            tasks=context.tasks,
            pools=context.pools,
        )
        self._reflector = Reflector(
            kube=context.kube,
            path=custom_resource_path(SKILLS, namespace=context.namespace),
            on_change=self.controller.observe,
            transform=strip,
            synced=synced,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch skills while the context lasts, then write the uses that are not written yet."""
        async with self._reflector.run_in_background():
            self.shipped.request(self.namespace)
            try:
                yield
            finally:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_FLUSH_SECONDS):
                        await self.controller.flush()

    def list_loops(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return the loops of the controller and of the release's own skills."""
        return {"skills": self.controller.run(), "shipped skills": self.shipped.run()}

    def end_withdrawn(self) -> None:
        """Forget all skills, read them with the keys that are accepted now, and prove again what the release brings."""
        self.index.clear()
        self._reflector.relist()
        self.shipped.request(self.namespace)

    def open_namespace(self) -> None:
        """Create the release's own skills."""
        self.shipped.request(self.namespace)
