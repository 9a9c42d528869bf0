"""Origin and Host of a request: whether a browser sent it from a page that has no business here.

A page of another site can make a browser send requests to an address inside the cluster (DNS rebinding). They carry the
page's origin, and no API key; the protocol requires the check nevertheless.
"""

from starlette.requests import Request

from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.settings import Settings


def check_origin(request: Request, settings: Settings) -> None:
    """Raise HttpProblem, a 403, for an origin that is not allowed, or a 421 for a host, if hosts are restricted."""
    origin = request.headers.get("origin")
    if origin is not None and origin not in settings.allowed_origins:
        allowed = ", ".join(settings.allowed_origins) or "none"
        raise HttpProblem("forbidden", 403, f"the origin {origin[:100]!r} is not allowed; allowed are: {allowed}")
    host = request.headers.get("host", "")
    if settings.allowed_hosts and host not in settings.allowed_hosts:
        allowed = ", ".join(settings.allowed_hosts)
        raise HttpProblem("misdirected", 421, f"the host {host[:100]!r} is not served; served are: {allowed}")
