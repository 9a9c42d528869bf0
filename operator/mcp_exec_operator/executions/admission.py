"""A look at an execution's code before it gets a pod, as its pool wants it."""

import asyncio
from dataclasses import dataclass, replace

from mcp_exec_api.code_execution import CodeExecutionSpec, Reason
from mcp_exec_api.code_findings import CodeCheck, CodeCheckMode, Finding
from mcp_exec_common.code_check.rules import check_code
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.executions.outcome import Decided
from mcp_exec_operator.executions.status import failed
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.partition import Partition
from mcp_exec_operator.pools.pool import WarmPool

_NAMED = 3
"""Findings that a message names; the status has them all."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What was found, and by what rules."""

    rules: CodeCheck
    findings: list[Object]
    """As the status has them."""


@dataclass(frozen=True, kw_only=True)
class CodeChecks:
    """Looks at code, and counts what is found."""

    metrics: Metrics

    async def check(
        self, spec: CodeExecutionSpec, pool: WarmPool | Partition, *, before: Checked | None = None
    ) -> Checked:
        """What stands out in the code, by the pool's rules as they are now; `before` where those have not changed.

        Raises Decided where the pool refuses such code. Without rules it does not give way to other tasks.
        """
        # a pool that is not known yet has none; what waits for it is checked when it has a pod
        rules = pool.spec.code_check if pool.spec is not None else CodeCheck()
        if before is not None and before.rules == rules:
            return before
        if rules.mode is CodeCheckMode.OFF:
            return Checked(rules=rules, findings=[])
        # long code takes longer than other executions should wait
        found = await asyncio.to_thread(check_code, spec.code, rules)
        for each in found:
            self.metrics.code_findings.labels(pool.namespace, pool.name, each.rule, rules.mode).inc()
        stored = [each.to_api() for each in found]
        if found and rules.mode is CodeCheckMode.STRICT:
            raise Decided(replace(failed(Reason.REJECTED, _refusal(pool.name, found)), code_findings=stored))
        return Checked(rules=rules, findings=stored)


def _refusal(pool: str, found: list[Finding]) -> str:
    named = "; ".join(map(str, found[:_NAMED]))
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"spec.code: pool {pool} refuses it: {named}{more}"
