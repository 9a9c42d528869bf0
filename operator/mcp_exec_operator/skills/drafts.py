"""Drafts that code saves by `save_skill`: events of a run become Skill objects of the execution's caller."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import SkillUse
from mcp_exec_api.meta import field_errors, now
from mcp_exec_api.skill import MAX_SAVED_SKILLS, Provenance, SkillSource, SkillSpec
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_manifests import build_skill
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.skills.interface import InvalidSkill, read_interface
from mcp_exec_common.supervisor.protocol import SkillEvent
from mcp_exec_operator.skills.api import SkillApi
from mcp_exec_operator.skills.index import SkillIndex
from mcp_exec_tools.text import shorten

MAX_DRAFTS: Final = 100
"""Drafts of one author in one namespace."""
_MAX_ATTEMPTS: Final = 5
_WAIT_SECONDS: Final = 5.0
"""Longest time for which the end of an execution waits for its drafts."""


class DraftRefused(Exception):
    """A draft that is not created. The message says why."""


@dataclass(frozen=True, kw_only=True)
class SavedBy:
    """The execution whose code saves a skill."""

    namespace: str
    name: str
    uid: str
    caller: str
    """The proven caller; empty if it came through the Kubernetes API."""
    is_claimed: bool
    """Whether it names a caller without a proof."""
    user: str | None


@dataclass(frozen=True, kw_only=True)
class DraftWriter:
    """Creates drafts, each once."""

    api: SkillApi
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
        if by.is_claimed:
            raise DraftRefused("the caller of the execution is not proven")
        digest = "sha256:" + hashlib.sha256(event.code.encode("utf-8", "replace")).hexdigest()
        if (known := self.index.find_saved(by.namespace, event.name, (by.uid, digest))) is not None:
            return known.object
        if self.index.count_drafts(by.namespace, by.caller) >= MAX_DRAFTS:
            raise DraftRefused(f"the caller has {MAX_DRAFTS} drafts; delete some, or have them approved")
        try:
            await asyncio.to_thread(read_interface, event.code)
        except InvalidSkill as error:
            raise DraftRefused(f"code: {error}") from None
        version = self.index.next_version(by.namespace, event.name)
        for number in range(_MAX_ATTEMPTS):
            spec = _build_spec(event, by, version=version + number, digest=digest, moment=self.clock())
            manifest = build_skill(
                spec, namespace=by.namespace, author=by.caller, attestor=self.attestor, moment=self.clock()
            )
            try:
                created = await self.api.create(manifest)
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
            tools=event.tools,
            tags=event.tags,
            user=by.user,
            provenance=provenance,
        )
    except ValidationError as error:
        text = "; ".join(f"{each.field}: {each.message}" for each in field_errors(error, SkillSpec))
        raise DraftRefused(text) from None
