"""Checks of an execution's spec and code before it takes a pod."""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.code_findings import CodeCheck, CodeCheckMode, Finding
from mcp_exec_api.meta import field_errors
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.code_check.rules import check_code
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.protocol import JobSkills
from mcp_exec_operator.executions.outcome import EndedBeforeRun, build_cancellation, build_failure
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.pool import Pool

_MAX_NAMED: Final = 3
"""Findings that the error message names; the status has all of them."""


@dataclass(frozen=True, kw_only=True)
class CodeCheckResult:
    """Findings in the code of an execution, and the rules that found them."""

    rules: CodeCheck
    findings: list[Object]
    """The findings as the status has them."""


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Admits executions to a pool, and counts findings in their code."""

    metrics: Metrics

    async def check(
        self, spec: CodeExecutionSpec, pool: Pool, *, earlier: CodeCheckResult | None = None
    ) -> CodeCheckResult:
        """Return the findings in the code by the pool's present rules, or `earlier` if the rules are the same.

        Raises EndedBeforeRun if the pool rejects the time-out or the code. Without rules it never yields to other
        tasks.
        """
        # an unknown pool has no rules yet; what waits for it is checked again when it has a pod
        if pool.spec is not None and spec.timeout_seconds > pool.spec.max_timeout_seconds:
            limit = pool.spec.max_timeout_seconds
            raise EndedBeforeRun(
                build_failure(
                    Reason.REJECTED,
                    f"spec.timeoutSeconds: {spec.timeout_seconds} is more than the {limit} of pool {pool.name}",
                )
            )
        rules = pool.spec.code_check if pool.spec is not None else CodeCheck()
        if earlier is not None and earlier.rules == rules:
            return earlier
        if rules.mode is CodeCheckMode.OFF:
            return CodeCheckResult(rules=rules, findings=[])
        # in a thread: the check of long code takes longer than other executions should wait
        findings = await asyncio.to_thread(check_code, spec.code, rules)
        for finding in findings:
            self.metrics.code_findings.labels(pool.namespace, pool.name, finding.rule, rules.mode).inc()
        stored = [finding.to_api() for finding in findings]
        if findings and rules.mode is CodeCheckMode.STRICT:
            rejection = build_failure(Reason.REJECTED, _format_rejection(pool.name, findings))
            raise EndedBeforeRun(replace(rejection, code_findings=stored))
        return CodeCheckResult(rules=rules, findings=stored)

    async def check_skills(self, skills: JobSkills | None, pool: Pool) -> None:
        """Raise EndedBeforeRun if the pool rejects the code of a skill that the execution gets."""
        rules = pool.spec.code_check if pool.spec is not None else CodeCheck()
        if skills is None or rules.mode is not CodeCheckMode.STRICT:
            return
        for name, source in skills.sources.items():
            if findings := await asyncio.to_thread(check_code, source.code, rules):
                message = f"skill {name}: {_format_rejection(pool.name, findings)}"
                raise EndedBeforeRun(build_failure(Reason.REJECTED, message))


def parse_spec(record: ExecutionRecord, spec: Object | None) -> CodeExecutionSpec:
    """Return the spec of an execution. Raises EndedBeforeRun if it is invalid or a cancellation is requested."""
    check_still_wanted(record)
    try:
        return CodeExecutionSpec.model_validate(spec)
    except ValidationError as error:
        text = "; ".join(
            f"spec.{invalid.field}: {invalid.message}" for invalid in field_errors(error, CodeExecutionSpec)
        )
        raise EndedBeforeRun(build_failure(Reason.REJECTED, text)) from error


def check_still_wanted(record: ExecutionRecord) -> None:
    """Raise EndedBeforeRun if a cancellation is requested, or if the spec is not the one that was created."""
    if record.is_unwanted:
        raise EndedBeforeRun(build_cancellation(record.withdrawn))
    if record.changed:
        names = " and ".join(f"spec.{name}" for name in record.changed)
        raise EndedBeforeRun(build_failure(Reason.REJECTED, f"{names} was changed after creation"))


def _format_rejection(pool: str, findings: list[Finding]) -> str:
    named = "; ".join(map(str, findings[:_MAX_NAMED]))
    more = f"; and {len(findings) - _MAX_NAMED} more" if len(findings) > _MAX_NAMED else ""
    return f"spec.code: pool {pool} rejects it: {named}{more}"
