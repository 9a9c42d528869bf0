"""Limits of caller and pool applied to the spec of a new execution."""

from collections.abc import Iterable, Sequence

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.meta import FieldError
from mcp_exec_gateway.auth.callers import Caller, check_user
from mcp_exec_gateway.http.problems import HttpProblem, invalid_field
from mcp_exec_gateway.pools.cache import CachedPool, PoolCache
from mcp_exec_gateway.pools.choice import check_pool, find_pool
from mcp_exec_tools.patterns import intersect, is_within


def fit_spec(spec: CodeExecutionSpec, *, caller: Caller, pools: PoolCache) -> CodeExecutionSpec:
    """Return the spec within the limits of caller and pool; defaults that exceed a limit are lowered to it.

    Raises HttpProblem: 403 for a pool, tool or user that the API key may not use, 422 for a value beyond a limit.
    """
    name = spec.pool_ref.name
    check_pool(name, caller=caller, field="poolRef.name")
    check_tools(spec.tools, caller=caller)
    check_user(spec.user, caller=caller)
    pool = find_pool(name, caller=caller, pools=pools, field="poolRef.name")
    return _fit_priority(_fit_timeout(spec, caller=caller, pool=pool), caller=caller)


def check_tools(patterns: Iterable[str], *, caller: Caller) -> None:
    """Raise HttpProblem, a 403, if the API key may not use all tools that the patterns match."""
    allowed = caller.limits.tools
    if allowed is None:
        return
    limit = f"the API key {caller.name} may use only {', '.join(allowed) or 'none'}"
    errors = [
        FieldError(field=f"tools.{number}", message=f"{pattern}: {limit}")
        for number, pattern in enumerate(patterns)
        if not is_within(pattern, allowed)
    ]
    if errors:
        raise HttpProblem("forbidden", 403, f"{errors[0].field}: {errors[0].message}", errors=errors)


def narrow_tools(patterns: Sequence[str] | None, *, caller: Caller) -> list[str] | None:
    """Return patterns of the tools that a client has chosen and its API key may use; None stands for all.

    Raises HttpProblem, a 403, if the key may use none of those that were chosen.
    """
    allowed = caller.limits.tools
    if patterns is None or allowed is None:
        return allowed if patterns is None else list(patterns)
    narrowed = intersect(patterns, allowed)
    if patterns and not narrowed:
        check_tools(patterns, caller=caller)
    return narrowed


def find_longest_timeout(caller: Caller, *, pools: PoolCache, pool: str) -> int | None:
    """Return the longest `timeoutSeconds` of a caller's execution in a pool, or None if there is no such pool."""
    found = pools.find(caller.namespace, pool)
    return None if found is None else min(_list_timeouts(caller, found))[0]


def _list_timeouts(caller: Caller, pool: CachedPool) -> list[tuple[int, str]]:
    limits = [(pool.max_timeout_seconds, f"pool {pool.name}")]
    if caller.limits.max_timeout_seconds is not None:
        limits.append((caller.limits.max_timeout_seconds, f"API key {caller.name}"))
    return limits


def _fit_timeout(spec: CodeExecutionSpec, *, caller: Caller, pool: CachedPool) -> CodeExecutionSpec:
    seconds, owner = min(_list_timeouts(caller, pool))
    if spec.timeout_seconds <= seconds:
        return spec
    if "timeout_seconds" in spec.model_fields_set:
        message = f"{spec.timeout_seconds} is more than the {seconds} seconds that {owner} allows"
        raise invalid_field("timeoutSeconds", message)
    return spec.model_copy(update={"timeout_seconds": seconds})


def _fit_priority(spec: CodeExecutionSpec, *, caller: Caller) -> CodeExecutionSpec:
    highest = caller.limits.max_priority
    if highest is None or spec.priority.rank >= highest.rank:
        return spec
    if "priority" in spec.model_fields_set:
        message = f"{spec.priority} is higher than {highest}, the highest that API key {caller.name} allows"
        raise invalid_field("priority", message)
    return spec.model_copy(update={"priority": highest})
