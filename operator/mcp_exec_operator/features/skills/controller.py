"""The Skill controller, which writes skills' status off the path of executions."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mcp_exec_api.code_findings import CHECKED_LANGUAGES, CodeCheck, CodeCheckMode, Finding
from mcp_exec_api.constants import Language
from mcp_exec_api.meta import Condition, ConditionStatus, micro_time, now, set_condition
from mcp_exec_api.skill import SkillState
from mcp_exec_common.code_check.rules import check_code
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.skills.interface import InvalidSkill
from mcp_exec_common.skills.languages import read_interface
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.features.skills.index import SkillEntry, SkillIndex
from mcp_exec_tools.text import shorten

log = logging.getLogger(__name__)

_MAX_MESSAGE = 1024
_FLUSH_SECONDS: Final = 5.0
"""How long uses are gathered before they are written: at most one write of a skill in this time."""
_RETRY_SECONDS: Final = 1.0
_RULES: Final = CodeCheck(mode=CodeCheckMode.WARN)
"""Rules of the static check. Those of a pool apply when an execution uses the skill there."""
_STATE_FIELDS: Final = ("state", "author", "digest", "reviewedBy", "reviewedAt", "conditions")


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What was found in the code of a skill."""

    parameters: Object | None = None
    findings: tuple[Finding, ...] = ()
    problem: str = ""


@dataclass(kw_only=True)
class SkillCounts:
    """Executions that got a skill and are not in its status yet."""

    uses: int = 0
    successes: int = 0
    last: datetime | None = None


def build_status(
    status: Object, entry: SkillEntry, *, inspection: Inspection | None, usage: SkillCounts | None, moment: datetime
) -> Object:
    """Return the status with the present state, what was found in the code, and the use since the last write."""
    reading = entry.reading
    fields: Object = {
        "state": str(entry.state),
        "author": reading.author,
        "digest": status.get("digest") or reading.digest,
        "reviewedBy": reading.reviewed_by,
        "reviewedAt": reading.reviewed_at,
    }
    problem = entry.problem
    if inspection is not None:
        problem = problem or inspection.problem
        fields["parameters"] = inspection.parameters
        fields["codeFindings"] = [finding.to_api() for finding in inspection.findings] or None
    is_inspected = inspection is not None or bool(entry.problem)
    if conditions := _build_conditions(status, problem if is_inspected else None, reading.unproven, moment):
        fields["conditions"] = conditions
    if usage is not None and usage.uses:
        fields["uses"] = int(status.get("uses") or 0) + usage.uses
        fields["successes"] = int(status.get("successes") or 0) + usage.successes
        fields["lastUsedAt"] = micro_time(usage.last or moment)
    return drop_empty_fields({**status, **fields})


def _build_conditions(status: Object, problem: str | None, unproven: str, moment: datetime) -> list[Object]:
    """Return the conditions. Valid stays if `problem` is None, and Proven is left out if it has always been true."""
    known = [Condition.model_validate(condition) for condition in status.get("conditions") or ()]
    if problem is not None:
        known = set_condition(known, _build_condition("Valid", "Invalid", problem, moment))
    if unproven or any(condition.type == "Proven" for condition in known):
        message = unproven and f"without a proof that is accepted: {unproven}"
        known = set_condition(known, _build_condition("Proven", "NotProven", message, moment))
    return [drop_empty_fields(condition.to_api()) for condition in known]


def _build_condition(name: str, otherwise: str, problem: str, moment: datetime) -> Condition:
    return Condition(
        type=name,
        status=ConditionStatus.FALSE if problem else ConditionStatus.TRUE,
        reason=otherwise if problem else name,
        message=shorten(problem, _MAX_MESSAGE),
        last_transition_time=moment,
    )


@dataclass(kw_only=True, eq=False)
class SkillController:
    """Status of all skills. `observe` and `count` never wait."""

    api: OperatorApi
    index: SkillIndex
    flush_seconds: float = _FLUSH_SECONDS
    clock: Callable[[], datetime] = now
    _pending: dict[ObjectKey, None] = field(default_factory=dict)
    """Skills whose status has to be written, first come, first served."""
    _usage: dict[ObjectKey, SkillCounts] = field(default_factory=dict)
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def observe(self, body: Object, deleted: bool) -> None:
        """Take in a watch event."""
        entry = self.index.observe(body, deleted=deleted)
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if entry is None:
            self._pending.pop(key, None)
            self._usage.pop(key, None)
        elif self._is_outdated(entry):
            self._pending[key] = None
            self.changed()

    def changed(self) -> None:
        """Write the statuses of skills soon."""
        self._wakeup.set()

    def count(self, namespace: str, names: Iterable[str], *, succeeded: bool) -> None:
        """Count an execution that got these skills."""
        for name in names:
            if self.index.get(namespace, name) is not None:
                usage = self._usage.setdefault((namespace, name), SkillCounts())
                usage.uses, usage.successes = usage.uses + 1, usage.successes + succeeded
                usage.last = self.clock()

    async def run(self) -> None:
        """Write what is pending, and uses every few seconds, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.flush_seconds):
                    await self._wakeup.wait()
            self._wakeup.clear()
            if not await self.flush():
                await asyncio.sleep(_RETRY_SECONDS)

    async def flush(self) -> bool:
        """Write all that is pending now. Return whether all of it was written."""
        keys = list(dict.fromkeys([*self._pending, *self._usage]))
        for key in keys:
            try:
                await self._write(key)
            except ApiError as error:
                if error.code != 409:
                    log.warning("the status of a skill was not written: %s", error, extra={"skill": key[1]})
                self._pending[key] = None
                self.changed()
        return not self._pending

    async def _write(self, key: ObjectKey) -> None:
        self._pending.pop(key, None)
        body = await self.api.get("Skill", *key)
        entry = None if body is None else self.index.observe(body, deleted=False)
        if body is None or entry is None:
            self._usage.pop(key, None)
            return
        status = body.get("status") or {}
        inspection = None
        if not _has_valid(status) and not entry.problem:
            inspection = await asyncio.to_thread(_inspect, str(body["spec"]["code"]), entry.language)
        usage = self._usage.pop(key, None)
        new = build_status(status, entry, inspection=inspection, usage=usage, moment=self.clock())
        if new == status:
            return
        if status.get("state") == SkillState.APPROVED and entry.state is SkillState.DRAFT:
            log.warning(
                "skill %s is a draft again, without a proof: %s",
                entry.object,
                entry.reading.unproven or "nothing",
                extra={"namespace": entry.namespace, "skill": entry.object},
            )
        try:
            version = body["metadata"]["resourceVersion"]
            await self.api.replace_status("Skill", *key, version=version, status=new, what="skill-status")
        except ApiError:
            if usage is not None:  # counted again with what came meanwhile
                later = self._usage.setdefault(key, SkillCounts())
                later.uses, later.successes = later.uses + usage.uses, later.successes + usage.successes
                later.last = later.last or usage.last
            raise

    def _is_outdated(self, entry: SkillEntry) -> bool:
        status = entry.status
        if not _has_valid(status):
            return True
        new = build_status(status, entry, inspection=None, usage=None, moment=self.clock())
        return any(new.get(name) != status.get(name) for name in _STATE_FIELDS)


def _has_valid(status: Object) -> bool:
    return any(condition.get("type") == "Valid" for condition in status.get("conditions") or ())


def _inspect(code: str, language: Language) -> Inspection:
    """Return what is found in a skill's code. Takes up to tens of milliseconds."""
    findings = tuple(check_code(code, _RULES)) if language in CHECKED_LANGUAGES else ()
    try:
        interface = read_interface(code, language)
    except InvalidSkill as error:
        return Inspection(findings=findings, problem=f"spec.code: {error}")
    return Inspection(parameters=interface.parameters, findings=findings)
