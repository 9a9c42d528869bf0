"""The caller of a request: authenticated, authorized and within its rate limit before anything else happens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection, Request

from mcp_exec_gateway.auth.api_keys import ApiKey
from mcp_exec_gateway.auth.authenticator import Authenticator, Caller, Verb
from mcp_exec_gateway.auth.peers import IpNetwork, PeerLimiter, find_peer
from mcp_exec_gateway.auth.rate_limits import RateLimiter
from mcp_exec_gateway.auth.service_accounts import ServiceAccountUser
from mcp_exec_gateway.http.access_log import get_trace
from mcp_exec_gateway.http.problems import unavailable
from mcp_exec_gateway.http.query_params import reject_repeated_parameters, reject_undecodable_url
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
    peer_limiter: PeerLimiter
    trusted_proxies: Sequence[IpNetwork]
    """Networks of proxies whose X-Forwarded-For counts."""
    metrics: Metrics
    find_unsynced: Callable[[], Sequence[str]]
    """Returns the caches that are not filled yet."""

    async def resolve(
        self,
        request: Request,
        credentials: HTTPAuthorizationCredentials | None,
        verb: Verb,
        *,
        namespace: str | None = None,
    ) -> Caller:
        """Return the caller, who may do this in the namespace: this one, the query's or the caller's own.

        Raises HttpProblem: 401, 403, 429, or 503 while the gateway starts.
        """
        # with caches that are not filled, the gateway would reject keys and pools that exist
        if unsynced := self.find_unsynced():
            raise unavailable(f"the gateway is starting: it has not read {', '.join(unsynced)} yet")
        # a proxy may have checked another one of two headers
        is_single = len(request.headers.getlist("authorization")) == 1
        with self.metrics.measure_stage("authenticate"):
            sender = await self._identify(request, credentials.credentials.strip() if credentials and is_single else "")
            if isinstance(sender, ApiKey):
                self.rate_limiter.check(sender)  # before the rights, so that rejected requests count
            requested = namespace or request.query_params.get("namespace") or None
            caller = await self.authenticator.authorize(sender, namespace=requested, verb=verb)
        trace = get_trace(request.scope)
        trace.caller, trace.namespace = caller.name, caller.namespace
        reject_undecodable_url(request)
        reject_repeated_parameters(request)
        return caller

    async def authorize(self, caller: Caller, credentials: HTTPAuthorizationCredentials, verb: Verb) -> Caller:
        """Return a resolved caller, who may do this as well. Raises HttpProblem: 401 or 403."""
        sender = await self.authenticator.identify(credentials.credentials.strip())
        return await self.authenticator.authorize(sender, namespace=caller.namespace, verb=verb)

    def limit_anonymous(self, request: HTTPConnection) -> str:
        """Count a request without a known caller and return its peer. Raises HttpProblem if the peer sent too many."""
        peer = find_peer(request, trusted=self.trusted_proxies)
        self.peer_limiter.take(peer)
        return peer

    async def _identify(self, request: Request, token: str) -> ApiKey | ServiceAccountUser:
        if self.authenticator.recognizes(token):  # a flood from the same address does not affect it
            return await self.authenticator.identify(token)
        peer = self.limit_anonymous(request)
        sender = await self.authenticator.identify(token)
        self.peer_limiter.give_back(peer)
        return sender
