"""Who sent a request: each route settles it before it looks at anything else."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request

from mcp_exec_gateway.auth.authenticator import Caller, Verb
from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.http.access_log import trace_of
from mcp_exec_gateway.http.problems import unavailable


def caller_who_may(verb: Verb, *, dependencies: Dependencies) -> Callable[[Request], Awaitable[Caller]]:
    """What finds the caller of a request; it raises Problem where there is none who may do this."""

    async def find(request: Request) -> Caller:
        # before the first lists are in, keys and pools that exist would be called unknown
        if missing := dependencies.missing():
            raise unavailable(f"the gateway is starting: not known yet are {', '.join(missing)}")
        with dependencies.metrics.stage("authenticate"):
            caller = await dependencies.authenticator.caller(
                header=request.headers.get("authorization", ""),
                namespace=request.query_params.get("namespace") or None,
                verb=verb,
            )
        trace = trace_of(request.scope)
        trace.caller, trace.namespace = caller.name, caller.namespace
        dependencies.rates.check(caller)
        return caller

    return find
