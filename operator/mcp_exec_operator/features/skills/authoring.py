"""Skills that the operator creates: drafts that code saves by `save_skill`, and those that come with the release."""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import SkillUse
from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF, LABEL_CALLER, LABEL_SHIPPED, Language
from mcp_exec_api.meta import explain_errors, now
from mcp_exec_api.skill import MAX_SAVED_SKILLS, Provenance, SkillSource, SkillSpec, SkillState, content_digest
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_proofs import build_shipped, build_skill
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.skills.folder import SkillFolder
from mcp_exec_common.skills.interface import InvalidSkill
from mcp_exec_common.skills.languages import read_interface
from mcp_exec_common.supervisor.protocol import SkillEvent
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.features.skills.index import SkillEntry, SkillIndex
from mcp_exec_tools.text import shorten

log = logging.getLogger(__name__)


MAX_DRAFTS: Final = 100

"""Drafts of one author in one namespace."""

_MAX_ATTEMPTS: Final = 5

_WAIT_SECONDS: Final = 5.0

"""Longest wait of an execution's end for its drafts."""


_FIRST_DELAY: Final = 0.1
_LAST_DELAY: Final = 60.0

"""Seconds before a namespace is tried again; they double."""


class DraftRefused(Exception):
    """A draft that is not created. The message says why."""


@dataclass(frozen=True, kw_only=True)
class SavedBy:
    """The execution whose code saves a skill."""

    namespace: str
    name: str
    uid: str
    caller: str
    """The proven caller; empty if there is none."""
    user: str | None
    language: Language


@dataclass(frozen=True, kw_only=True)
class DraftWriter:
    """Creates drafts, each once."""

    api: OperatorApi
    index: SkillIndex
    attestor: Attestor
    clock: Callable[[], datetime] = now

    async def create(self, event: SkillEvent, by: SavedBy) -> str | DraftRefused:
        """Return the name of the draft's object, or why none is created.

        The events of a run may be read twice, so a draft of the same code and execution is not created again.
        """
        try:
            return await self._create(event, by)
        except DraftRefused as refusal:
            return refusal
        except ApiError as error:
            return DraftRefused(f"the API server refuses it: {error}")

    async def _create(self, event: SkillEvent, by: SavedBy) -> str:
        if not by.caller:
            raise DraftRefused("the caller of the execution is not proven, so the draft would be nobody's")
        digest = "sha256:" + hashlib.sha256(event.code.encode("utf-8", "replace")).hexdigest()
        if (known := self.index.find_saved(by.namespace, event.name, (by.uid, digest))) is not None:
            return known.object
        if self.index.count_drafts(by.namespace, by.caller) >= MAX_DRAFTS:
            raise DraftRefused(f"the caller has {MAX_DRAFTS} drafts; delete some, or have them approved")
        try:
            await asyncio.to_thread(read_interface, event.code, by.language)
        except InvalidSkill as error:
            raise DraftRefused(f"code: {error}") from None
        version = self.index.next_version(by.namespace, event.name)
        for number in range(_MAX_ATTEMPTS):
            spec = _build_spec(event, by, version=version + number, digest=digest, moment=self.clock())
            manifest = build_skill(
                spec, namespace=by.namespace, author=by.caller, attestor=self.attestor, moment=self.clock()
            )
            try:
                created = await self.api.create(manifest, what="skill")
            except ApiError as error:
                if error.code != 409:
                    raise
                continue
            self.index.observe(created, deleted=False)
            return str(created["metadata"]["name"])
        raise DraftRefused("other versions of this name were saved at the same time")


@dataclass(kw_only=True, eq=False)
class SavedSkills:
    """Skills that one run saves."""

    writer: DraftWriter
    tasks: TaskRegistry
    by: SavedBy
    _saving: list[asyncio.Task[str | DraftRefused]] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def add(self, event: SkillEvent) -> None:
        """Start to create the draft of an event. Those beyond the limit are ignored."""
        if len(self._saving) < MAX_SAVED_SKILLS:
            self._names.append(event.name)
            self._saving.append(self.tasks.spawn(self.writer.create(event, self.by), name=f"save {self.by.name}"))

    async def finish(self, used: list[str]) -> SkillUse | None:
        """Return the skills that the execution used and saved, or None if there are none."""
        if self._saving:
            await asyncio.wait(self._saving, timeout=_WAIT_SECONDS)
        saved: list[str] = []
        refused: list[str] = []
        for name, task in zip(self._names, self._saving, strict=True):
            if not task.done() or task.cancelled() or task.exception() is not None:
                task.cancel()
                outcome: str | DraftRefused = DraftRefused("the operator could not create it in time")
            else:
                outcome = task.result()
            if isinstance(outcome, str):
                saved.append(outcome)
            else:
                refused.append(shorten(f"{name[:64]}: {outcome}", 500))
        return SkillUse(used=used, saved=saved, refused=refused) if used or saved or refused else None


def _build_spec(event: SkillEvent, by: SavedBy, *, version: int, digest: str, moment: datetime) -> SkillSpec:
    provenance = Provenance(
        source=SkillSource.CODE, execution=by.name, execution_uid=by.uid, code_digest=digest, at=moment
    )
    try:
        return SkillSpec(
            name=event.name,
            version=version,
            description=event.description,
            code=event.code,
            language=by.language,
            tools=event.tools,
            tags=event.tags,
            user=by.user,
            provenance=provenance,
        )
    except ValidationError as error:
        raise DraftRefused(explain_errors(error, SkillSpec)) from None


@dataclass(kw_only=True, eq=False)
class ShippedSkills:
    """Skills of the release. Each namespace is reconciled once, when this operator begins to lead.

    So what somebody deletes returns with the next start, and an uninstallation can delete all. If a namespace has an
    approved version of its own of a name, it keeps the name; so it does with one that an approver deprecated.
    """

    api: OperatorApi
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
        self.changed()

    def changed(self) -> None:
        """Reconcile soon."""
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
            await self._prove_again(namespace, folder)
            await self._ensure(namespace, folder)
        names = {folder.name for folder in self.folders}
        for entry in self.index.list_shipped(namespace):
            if entry.name not in names:
                await self.api.delete("Skill", namespace, entry.object, uid=entry.uid, what="skill")

    async def _prove_again(self, namespace: str, folder: SkillFolder) -> None:
        """Sign a skill of the release whose key was withdrawn. Whoever wrote it, its content is the release's."""
        for entry in self.index.list_versions(namespace, folder.name):
            if entry.reading.is_shipped or not self._is_current(entry, folder):
                continue
            body = await self.api.get("Skill", namespace, entry.object)
            labels = (body or {}).get("metadata", {}).get("labels") or {}
            if body is None or not labels.get(LABEL_SHIPPED) or labels.get(LABEL_CALLER):
                continue
            if content_digest(body["spec"]) == entry.reading.digest:
                version = body["metadata"]["resourceVersion"]
                annotations = {ANNOTATION_CALLER_PROOF: self.attestor.sign_shipped(body)}
                patch = {"metadata": {"resourceVersion": version, "annotations": annotations}}
                stored = await self.api.patch("Skill", namespace, entry.object, patch, what="proof")
                self.index.observe(stored, deleted=False)

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
            await self.api.delete("Skill", namespace, entry.object, uid=entry.uid, what="skill")

    def _is_current(self, entry: SkillEntry, folder: SkillFolder) -> bool:
        return content_digest(self._build_spec(folder, entry.version).to_api()) == entry.reading.digest

    async def _create(self, namespace: str, folder: SkillFolder) -> bool:
        first = self.index.next_version(namespace, folder.name)
        for version in range(first, first + _MAX_ATTEMPTS):
            spec = self._build_spec(folder, version)
            manifest = build_shipped(spec, namespace=namespace, attestor=self.attestor, moment=self.clock())
            try:
                self.index.observe(await self.api.create(manifest, what="skill"), deleted=False)
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
            language=folder.language,
            instructions=folder.instructions or None,
            tools=folder.tools,
            tags=folder.tags,
            provenance=Provenance(source=SkillSource.FOLDER, code_digest=digest, at=self.clock()),
        )
