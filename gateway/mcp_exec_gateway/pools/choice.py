"""The pool that a request names."""

from mcp_exec_api.meta import FieldError
from mcp_exec_gateway.auth.callers import Caller
from mcp_exec_gateway.http.problems import HttpProblem, invalid_field
from mcp_exec_gateway.pools.cache import CachedPool, PoolCache


def check_pool(name: str, *, caller: Caller, field: str) -> None:
    """Raise HttpProblem, a 403, if the API key may not use the pool that a field names."""
    allowed = caller.limits.pools
    if allowed is not None and name not in allowed:
        message = f"the API key {caller.name} may use only {', '.join(allowed)}"
        raise HttpProblem("forbidden", 403, message, errors=[FieldError(field=field, message=message)])


def find_pool(name: str, *, caller: Caller, pools: PoolCache, field: str) -> CachedPool:
    """Return the pool that a field names. Raises HttpProblem, a 422, if there is none."""
    pool = pools.find(caller.namespace, name)
    if pool is None:
        names = ", ".join(pools.list_names(caller.namespace)) or "none"
        message = f"there is no pool {name} in namespace {caller.namespace}; there are: {names}"
        raise invalid_field(field, message)
    return pool
