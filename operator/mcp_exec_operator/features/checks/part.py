"""Checks of the code of executions by the rules of their pools, before it takes a pod."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.code_findings import CHECKED_LANGUAGES, CodeCheck, CodeCheckMode, Finding
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.code_check.rules import check_code
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.protocol import Event
from mcp_exec_operator.core.executions.execution import Execution
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.core.executions.part import JobDraft, Part
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.metrics import Metrics

_MAX_NAMED: Final = 3
"""Findings that the error message names; the status has all of them."""


@dataclass(kw_only=True, eq=False)
class CodeCheckPart(Part):
    """The check of one execution's code."""

    execution: Execution
    pools: PoolRegistry
    metrics: Metrics
    _rules: CodeCheck | None = None
    """The rules that found the findings."""
    _findings: list[Object] = field(default_factory=list)

    async def admit(self) -> None:
        """Find what the pool's rules find."""
        await self._check(self.pools.get(self.execution.facts.pool))

    async def join(self, job: JobDraft) -> None:
        """Check again if the rules have changed since, or if the pool did not exist then."""
        if self.execution.seen.phase is Phase.PENDING and self.execution.binding is not None:
            await self._check(self.execution.binding.pool)
        job.findings = self._findings

    async def _check(self, pool: Pool) -> None:
        rules, language = find_rules(pool), pool.shape.language
        if rules.mode is not CodeCheckMode.OFF and language not in CHECKED_LANGUAGES:
            message = f"pool {pool.name} checks code before it runs, and has no rules for {language}"
            raise EndedBeforeRun(build_failure(Reason.LANGUAGE_NOT_CHECKED, message))
        if self._rules != rules:
            self._rules = rules
            self._findings = [] if rules.mode is CodeCheckMode.OFF else await self._find(rules, pool)

    async def _find(self, rules: CodeCheck, pool: Pool) -> list[Object]:
        spec = await self.execution.load()
        # in a thread: the check of long code takes longer than other executions should wait
        findings = await asyncio.to_thread(check_code, spec.code, rules)
        for finding in findings:
            self.metrics.code_findings.labels(pool.namespace, pool.name, finding.rule, rules.mode).inc()
        stored = [finding.to_api() for finding in findings]
        if findings and rules.mode is CodeCheckMode.STRICT:
            rejection = build_failure(Reason.REJECTED, format_rejection(pool.name, findings))
            raise EndedBeforeRun(replace(rejection, code_findings=stored))
        return stored


@dataclass(frozen=True, kw_only=True)
class CodeChecks:
    """Checks executions of pools that have rules for code, and counts findings."""

    pools: PoolRegistry
    metrics: Metrics
    events: tuple[type[Event], ...] = ()

    def take_part(self, execution: Execution, *, pool: Pool, event: Event | None = None) -> Part | None:
        """Take part if the pool has rules. If it gets some later, this is called again."""
        if find_rules(pool).mode is CodeCheckMode.OFF:
            return None
        return CodeCheckPart(execution=execution, pools=self.pools, metrics=self.metrics)


def find_rules(pool: Pool) -> CodeCheck:
    """Return the rules for the code of a pool's executions; those that find nothing if the pool is unknown."""
    return pool.shape.spec.code_check if pool.shape.spec is not None else CodeCheck()


def format_rejection(pool: str, findings: Sequence[Finding]) -> str:
    """Return why a pool rejects code, for people."""
    named = "; ".join(map(str, findings[:_MAX_NAMED]))
    more = f"; and {len(findings) - _MAX_NAMED} more" if len(findings) > _MAX_NAMED else ""
    return f"spec.code: pool {pool} rejects it: {named}{more}"
