"""Rejects code before an execution is created, if its pool would reject it."""

import asyncio

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.code_findings import CodeCheckMode
from mcp_exec_api.meta import FieldError
from mcp_exec_common.code_check import rules as code_rules
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.metrics import Metrics
from mcp_exec_gateway.pools.cache import PoolCache


async def check_code(spec: CodeExecutionSpec, *, namespace: str, pools: PoolCache, metrics: Metrics) -> None:
    """Raise HttpProblem, a 422 with all findings, if the pool's mode is Strict. The operator checks again."""
    pool = pools.find(namespace, spec.pool_ref.name)
    if pool is None or pool.code_check.mode is not CodeCheckMode.STRICT:
        return
    # in a thread, because long code takes longer than other requests should wait
    findings = await asyncio.to_thread(code_rules.check_code, spec.code, pool.code_check)
    if not findings:
        return
    for finding in findings:
        metrics.code_findings.labels(finding.rule).inc()
    errors = [FieldError(field="code", message=str(finding)) for finding in findings]
    detail = f"pool {spec.pool_ref.name} rejects the code: {'; '.join(error.message for error in errors)}"
    raise HttpProblem("code-refused", 422, detail, errors=errors)
