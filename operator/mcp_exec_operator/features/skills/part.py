"""The skills that code names and saves."""

import asyncio
from dataclasses import dataclass, replace

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.code_findings import CodeCheckMode
from mcp_exec_api.constants import Language
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.code_check.rules import check_code
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.protocol import Event, JobSkills, SkillEvent
from mcp_exec_operator.core.executions.execution import Execution
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, ExecutionOutcome, build_failure
from mcp_exec_operator.core.executions.part import JobDraft, Part
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.features.checks.part import find_rules, format_rejection
from mcp_exec_operator.features.skills.authoring import DraftWriter, SavedBy, SavedSkills
from mcp_exec_operator.features.skills.controller import SkillController
from mcp_exec_operator.features.skills.resolver import SkillResolver, SkillsRefused, may_name_skills


@dataclass(kw_only=True, eq=False)
class SkillsPart(Part):
    """The skills of one execution: those of its job, the drafts that it saves, and the count of its uses."""

    execution: Execution
    feature: "Skills"
    events: tuple[type[Event], ...] = (SkillEvent,)
    _saved: SavedSkills | None = None

    async def admit(self) -> None:
        """Reject an execution that names skills which it may not use."""
        await self._resolve()

    async def join(self, job: JobDraft) -> None:
        """Add the skills to the job, if the pool does not reject their code."""
        execution, binding = self.execution, self.execution.binding
        job.skills = skills = await self._resolve()
        if skills is None or binding is None or execution.seen.phase is not Phase.PENDING:
            return
        rules = find_rules(binding.pool)
        if rules.mode is not CodeCheckMode.STRICT:
            return
        for name, source in skills.sources.items():
            if findings := await asyncio.to_thread(check_code, source.code, rules):
                message = f"skill {name}: {format_rejection(binding.pool.name, findings)}"
                raise EndedBeforeRun(build_failure(Reason.REJECTED, message))

    def on_event(self, event: Event) -> None:
        """Create the draft of a skill that the code saves."""
        if isinstance(event, SkillEvent):
            self._get_saved().add(event)

    async def finish(self, outcome: ExecutionOutcome) -> ExecutionOutcome:
        """Add the skills that the execution used and saved to the outcome."""
        used = (self.execution.seen.status.get("skills") or {}).get("used") or []
        skills = await self._get_saved().finish(used)
        succeeded = outcome.phase is Phase.SUCCEEDED
        self.feature.controller.count(self.execution.facts.namespace, used, succeeded=succeeded)
        if skills is None:
            return outcome
        return replace(outcome, skills={name: each for name, each in skills.to_api().items() if each})

    async def stop(self) -> None:
        """Forget what was saved: another attempt reads all events again."""
        self._saved = None

    async def _resolve(self) -> JobSkills | None:
        try:
            spec = await self.execution.load()
            owner = self.execution.facts.owner
            return await self.feature.resolver.resolve(spec, owner=owner, language=self._language)
        except SkillsRefused as error:
            raise EndedBeforeRun(build_failure(Reason.REJECTED, str(error))) from error

    @property
    def _language(self) -> Language:
        """Language of the code: what the execution names, or that of its pool."""
        binding = self.execution.binding
        pool = self.feature.pools.get(self.execution.facts.pool) if binding is None else binding.pool
        return self.execution.spec.language or pool.shape.language

    def _get_saved(self) -> SavedSkills:
        if self._saved is None:
            facts = self.execution.facts
            by = SavedBy(
                namespace=facts.namespace,
                name=facts.name,
                uid=facts.uid,
                caller=facts.owner.caller,
                user=self.execution.spec.user,
                language=self._language,
            )
            self._saved = SavedSkills(writer=self.feature.drafts, tasks=self.feature.tasks, by=by)
        return self._saved


@dataclass(frozen=True, kw_only=True)
class Skills:
    """Skills of executions."""

    resolver: SkillResolver
    drafts: DraftWriter
    controller: SkillController
    tasks: TaskRegistry
    pools: PoolRegistry
    events: tuple[type[Event], ...] = (SkillEvent,)

    def take_part(self, execution: Execution, *, pool: Pool, event: Event | None = None) -> Part | None:
        """Take part if the spec or the code may name a skill, and when the code saves one."""
        spec = execution.source.spec or {}
        named = spec.get("skills") or spec.get("skillRef") or may_name_skills(str(spec.get("code")))
        if not named and event is None:
            return None
        return SkillsPart(execution=execution, feature=self)
