"""Checks of the time limit and the code of an execution, before it takes a pod."""

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
from mcp_exec_operator.core.executions.attempt import Attempt, Feature
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.metrics import Metrics

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
        rules = find_rules(pool)
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
            rejection = build_failure(Reason.REJECTED, format_rejection(pool.name, findings))
            raise EndedBeforeRun(replace(rejection, code_findings=stored))
        return stored


def find_rules(pool: Pool) -> CodeCheck:
    """Return the rules for the code of a pool's executions; those that find nothing if the pool is unknown."""
    return pool.spec.code_check if pool.spec is not None else CodeCheck()


def format_rejection(pool: str, findings: Sequence[Finding]) -> str:
    """Return why a pool rejects code, for people."""
    named = "; ".join(map(str, findings[:_MAX_NAMED]))
    more = f"; and {len(findings) - _MAX_NAMED} more" if len(findings) > _MAX_NAMED else ""
    return f"spec.code: pool {pool} rejects it: {named}{more}"
