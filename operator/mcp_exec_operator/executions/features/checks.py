"""Checks of code before it takes a pod, and the skills that code names and saves."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakKeyDictionary

from mcp_exec_api.code_execution import CodeExecutionSpec, Phase
from mcp_exec_api.code_findings import CodeCheck, CodeCheckMode, Finding
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.code_check.rules import check_code
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.protocol import Event, JobSkills, SkillEvent
from mcp_exec_operator.executions.attempt import Attempt, Feature
from mcp_exec_operator.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.pool import Pool
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.skills.authoring import SavedBy, SavedSkills
from mcp_exec_operator.skills.controller import SkillComponent
from mcp_exec_operator.skills.resolver import SkillsRefused

_MAX_NAMED: Final = 3
"""Findings that the error message names; the status has all of them."""


@dataclass(frozen=True, kw_only=True)
class CodeChecks(Feature):
    """Checks the time limit and the code of executions by the rules of their pools, and counts findings."""

    pools: PoolRegistry
    metrics: Metrics
    _rules: WeakKeyDictionary[Attempt, CodeCheck] = field(default_factory=WeakKeyDictionary)
    """The rules that found the findings of each attempt."""

    async def admit(self, attempt: Attempt) -> None:
        """Find what the pool's rules find. Without rules it never yields to other tasks."""
        await self._check(attempt, self.pools.get(attempt.record.pool))

    async def prepare(self, attempt: Attempt) -> None:
        """Check again if the rules have changed since, or if the pool did not exist then."""
        if attempt.record.phase is Phase.PENDING:
            await self._check(attempt, attempt.pool)

    async def _check(self, attempt: Attempt, pool: Pool) -> None:
        spec = await attempt.held.load()
        # an unknown pool has no rules yet; what waits for it is checked again when it has a pod
        if pool.spec is not None and spec.timeout_seconds > pool.spec.max_timeout_seconds:
            limit = pool.spec.max_timeout_seconds
            message = f"spec.timeoutSeconds: {spec.timeout_seconds} is more than the {limit} of pool {pool.name}"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))
        rules = _find_rules(pool)
        if self._rules.get(attempt) == rules:
            return
        self._rules[attempt] = rules
        attempt.findings = [] if rules.mode is CodeCheckMode.OFF else await self._find(spec, rules, pool)

    async def _find(self, spec: CodeExecutionSpec, rules: CodeCheck, pool: Pool) -> list[Object]:
        # in a thread: the check of long code takes longer than other executions should wait
        findings = await asyncio.to_thread(check_code, spec.code, rules)
        for finding in findings:
            self.metrics.code_findings.labels(pool.namespace, pool.name, finding.rule, rules.mode).inc()
        stored = [finding.to_api() for finding in findings]
        if findings and rules.mode is CodeCheckMode.STRICT:
            rejection = build_failure(Reason.REJECTED, _format_rejection(pool.name, findings))
            raise EndedBeforeRun(replace(rejection, code_findings=stored))
        return stored


@dataclass(frozen=True, kw_only=True)
class Skills(Feature):
    """Adds the skills that code names to its job, creates drafts of those that it saves, and counts uses."""

    component: SkillComponent
    tasks: TaskRegistry
    _saved: WeakKeyDictionary[Attempt, SavedSkills] = field(default_factory=WeakKeyDictionary)

    async def admit(self, attempt: Attempt) -> None:
        """Reject an execution that names skills which it may not use."""
        await self._resolve(attempt)

    async def prepare(self, attempt: Attempt) -> None:
        """Add the skills to the job, if the pool does not reject their code."""
        if not attempt.needs_job:
            return
        attempt.skills = skills = await self._resolve(attempt)
        rules, is_bound = _find_rules(attempt.pool), attempt.record.phase is not Phase.PENDING
        if skills is None or is_bound or rules.mode is not CodeCheckMode.STRICT:
            return
        for name, source in skills.sources.items():
            if findings := await asyncio.to_thread(check_code, source.code, rules):
                message = f"skill {name}: {_format_rejection(attempt.pool.name, findings)}"
                raise EndedBeforeRun(build_failure(Reason.REJECTED, message))

    def on_event(self, attempt: Attempt, event: Event) -> None:
        """Create the draft of a skill that the code saves."""
        if isinstance(event, SkillEvent):
            self._get_saved(attempt).add(event)

    async def finish(self, attempt: Attempt) -> None:
        """Add the skills that the execution used and saved to the outcome."""
        if attempt.outcome is None:
            return
        used = (attempt.record.status.get("skills") or {}).get("used") or []
        skills = await self._get_saved(attempt).finish(used)
        succeeded = attempt.outcome.phase is Phase.SUCCEEDED
        self.component.controller.count(attempt.record.namespace, used, succeeded=succeeded)
        if skills is not None:
            stored = {name: each for name, each in skills.to_api().items() if each}
            attempt.outcome = replace(attempt.outcome, skills=stored)

    async def _resolve(self, attempt: Attempt) -> JobSkills | None:
        spec, record = await attempt.held.load(), attempt.record
        try:
            return await self.component.resolver.resolve(spec, owner=record.owner)
        except SkillsRefused as error:
            raise EndedBeforeRun(build_failure(Reason.REJECTED, str(error))) from error

    def _get_saved(self, attempt: Attempt) -> SavedSkills:
        if (saved := self._saved.get(attempt)) is None:
            record = attempt.record
            by = SavedBy(
                namespace=record.namespace,
                name=record.name,
                uid=record.uid,
                caller=record.caller,
                user=attempt.spec.user,
            )
            saved = self._saved[attempt] = SavedSkills(writer=self.component.drafts, tasks=self.tasks, by=by)
        return saved


def _find_rules(pool: Pool) -> CodeCheck:
    return pool.spec.code_check if pool.spec is not None else CodeCheck()


def _format_rejection(pool: str, findings: Sequence[Finding]) -> str:
    named = "; ".join(map(str, findings[:_MAX_NAMED]))
    more = f"; and {len(findings) - _MAX_NAMED} more" if len(findings) > _MAX_NAMED else ""
    return f"spec.code: pool {pool} rejects it: {named}{more}"
