"""The caller of a request: authenticated, authorized and within its rate limit before anything else happens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request

from mcp_exec_gateway.auth.authenticator import Authenticator, Caller, Verb
from mcp_exec_gateway.auth.rate_limits import RateLimiter
from mcp_exec_gateway.http.access_log import get_trace
from mcp_exec_gateway.http.problems import unavailable
from mcp_exec_gateway.http.query_params import reject_repeated_parameters
from mcp_exec_gateway.metrics import Metrics

BEARER = HTTPBearer(
    scheme_name="bearer",
    description="An API key (`mcpx_...`) or a Kubernetes ServiceAccount token.",
    auto_error=False,
)


@dataclass(frozen=True, kw_only=True)
class CallerResolver:
    """Finds the caller of a request."""

    authenticator: Authenticator
    rate_limiter: RateLimiter
    metrics: Metrics
    find_unsynced: Callable[[], Sequence[str]]
    """Returns the caches that are not filled yet."""

    async def resolve(self, request: Request, credentials: HTTPAuthorizationCredentials | None, verb: Verb) -> Caller:
        """Return the caller, who may do this. Raises HttpProblem: 401, 403, 429, or 503 while the gateway starts."""
        # with caches that are not filled, the gateway would reject keys and pools that exist
        if unsynced := self.find_unsynced():
            raise unavailable(f"the gateway is starting: it has not read {', '.join(unsynced)} yet")
        with self.metrics.measure_stage("authenticate"):
            caller = await self.authenticator.authorize(
                credentials.credentials if credentials else "",
                namespace=request.query_params.get("namespace") or None,
                verb=verb,
            )
        trace = get_trace(request.scope)
        trace.caller, trace.namespace = caller.name, caller.namespace
        self.rate_limiter.check(caller)
        reject_repeated_parameters(request)
        return caller
