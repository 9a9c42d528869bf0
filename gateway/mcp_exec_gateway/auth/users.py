"""The users that callers may name."""

from mcp_exec_api.meta import FieldError
from mcp_exec_gateway.auth.authenticator import Caller
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_tools.patterns import name_matches


def check_user(user: str | None, *, caller: Caller) -> None:
    """Raise HttpProblem, a 403, if the API key may not name the user."""
    allowed = caller.limits.users
    if user is None or allowed is None or any(name_matches(pattern, user) for pattern in allowed):
        return
    message = f"the API key {caller.name} may name only {', '.join(allowed) or 'none'}"
    raise HttpProblem("forbidden", 403, f"user: {message}", errors=[FieldError(field="user", message=message)])
