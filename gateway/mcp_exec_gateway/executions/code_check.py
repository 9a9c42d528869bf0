"""Refuses code, before anything is created, that its pool would refuse."""

import asyncio

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.code_findings import CodeCheckMode
from mcp_exec_api.meta import FieldError
from mcp_exec_common.code_check import rules as code_rules
from mcp_exec_gateway.executions.pools import Pools
from mcp_exec_gateway.http.problems import Problem
from mcp_exec_gateway.metrics import Metrics


async def check_code(spec: CodeExecutionSpec, *, namespace: str, pools: Pools, metrics: Metrics) -> None:
    """Raises Problem, 422 with each finding, where the pool is strict. The operator looks again, and looks for Warn."""
    rules = pools.code_check(namespace, spec.pool_ref.name)
    if rules.mode is not CodeCheckMode.STRICT:
        return
    # long code takes longer than other requests should wait
    found = await asyncio.to_thread(code_rules.check_code, spec.code, rules)
    if not found:
        return
    for each in found:
        metrics.code_findings.labels(each.rule).inc()
    errors = [FieldError(field="code", message=str(each)) for each in found]
    detail = f"pool {spec.pool_ref.name} refuses the code: {'; '.join(error.message for error in errors)}"
    raise Problem("code-refused", 422, detail, errors=errors)
