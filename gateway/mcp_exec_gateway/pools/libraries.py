"""Libraries of a pool's image in words."""

from mcp_exec_gateway.auth.callers import Caller
from mcp_exec_gateway.pools.cache import PoolCache
from mcp_exec_tools.prompt import describe_libraries


def describe_pool(name: str, *, caller: Caller, pools: PoolCache) -> str:
    """Return what a pool has in words for models, or an empty text if that is unknown or the caller may not use it."""
    allowed, pool = caller.limits.pools, pools.find(caller.namespace, name)
    if pool is None or (allowed is not None and name not in allowed):
        return ""
    libraries = [(library.name, library.version) for library in pool.capacity.libraries or ()]
    return describe_libraries(pool.capacity.python, libraries)
