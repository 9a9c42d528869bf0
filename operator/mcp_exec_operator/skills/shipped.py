"""Skills that the release brings: approved objects in each served namespace, which upgrades replace."""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_api.skill import Provenance, SkillSource, SkillSpec, SkillState, content_digest
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_manifests import build_shipped
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.skills.folder import SkillFolder
from mcp_exec_operator.skills.api import SkillApi
from mcp_exec_operator.skills.index import SkillEntry, SkillIndex

log = logging.getLogger(__name__)

_MAX_ATTEMPTS: Final = 5
_FIRST_DELAY: Final = 0.1
_LAST_DELAY: Final = 60.0
"""Seconds before a namespace is tried again; they double."""


@dataclass(kw_only=True, eq=False)
class ShippedSkills:
    """Skills of the release. Each namespace is reconciled once, when this operator begins to lead.

    So what somebody deletes returns with the next start, and an uninstallation can delete all. A name of which the
    namespace has an approved version of its own is left to it, as is one that an approver deprecated.
    """

    api: SkillApi
    index: SkillIndex
    attestor: Attestor
    folders: tuple[SkillFolder, ...]
    clock: Callable[[], datetime] = now
    pending: dict[str, None] = field(default_factory=dict)
    """Namespaces that are not reconciled yet."""
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def request(self, namespace: str) -> None:
        """Have a namespace reconciled: at the start, or after it was created again."""
        self.pending[namespace] = None
        self._wakeup.set()

    async def run(self) -> None:
        """Reconcile the requested namespaces whose skills are known, until cancelled."""
        delay = _FIRST_DELAY
        while True:
            self._wakeup.clear()
            for namespace in list(self.pending):
                if self.index.synced[namespace].is_set() and await self._try(namespace):
                    del self.pending[namespace]
            with suppress(TimeoutError):
                async with asyncio.timeout(delay if self.pending else None):
                    await self._wakeup.wait()
                    delay = _FIRST_DELAY
                    continue
            delay = min(2 * delay, _LAST_DELAY)

    async def _try(self, namespace: str) -> bool:
        try:
            await self.reconcile(namespace)
        except ApiError as error:
            log.warning("the shipped skills are not complete: %s", error, extra={"namespace": namespace})
            return False
        return True

    async def reconcile(self, namespace: str) -> None:
        """Create what is missing or has changed, and delete what the release has no longer. Raises ApiError."""
        for folder in self.folders:
            await self._ensure(namespace, folder)
        names = {folder.name for folder in self.folders}
        for entry in self.index.list_shipped(namespace):
            if entry.name not in names:
                await self.api.delete(namespace, entry.object, uid=entry.uid)

    async def _ensure(self, namespace: str, folder: SkillFolder) -> None:
        versions = self.index.list_versions(namespace, folder.name)
        shipped = [entry for entry in versions if entry.reading.is_shipped]
        if any(entry.state is not SkillState.DRAFT and not entry.reading.is_shipped for entry in versions):
            log.info("the namespace has a skill %s of its own", folder.name, extra={"namespace": namespace})
            return
        newest = shipped.pop() if shipped else None
        if newest is None or not self._is_current(newest, folder):
            if newest is not None:
                if newest.state is SkillState.DEPRECATED:
                    return
                shipped.append(newest)
            if not await self._create(namespace, folder):
                return
        for entry in shipped:
            await self.api.delete(namespace, entry.object, uid=entry.uid)

    def _is_current(self, entry: SkillEntry, folder: SkillFolder) -> bool:
        return content_digest(self._build_spec(folder, entry.version).to_api()) == entry.reading.digest

    async def _create(self, namespace: str, folder: SkillFolder) -> bool:
        first = self.index.next_version(namespace, folder.name)
        for version in range(first, first + _MAX_ATTEMPTS):
            spec = self._build_spec(folder, version)
            manifest = build_shipped(spec, namespace=namespace, attestor=self.attestor, moment=self.clock())
            try:
                self.index.observe(await self.api.create(manifest), deleted=False)
            except ApiError as error:
                if error.code != 409:
                    raise
                continue
            return True
        log.warning("%d versions of %s were taken", _MAX_ATTEMPTS, folder.name, extra={"namespace": namespace})
        return False

    def _build_spec(self, folder: SkillFolder, version: int) -> SkillSpec:
        digest = "sha256:" + hashlib.sha256(folder.code.encode()).hexdigest()
        return SkillSpec(
            name=folder.name,
            version=version,
            description=folder.description,
            code=folder.code,
            instructions=folder.instructions or None,
            tools=folder.tools,
            tags=folder.tags,
            provenance=Provenance(source=SkillSource.FOLDER, code_digest=digest, at=self.clock()),
        )
