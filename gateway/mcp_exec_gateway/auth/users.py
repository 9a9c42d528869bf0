"""The users that callers may name, and whose executions callers may see."""

from mcp_exec_api.meta import FieldError
from mcp_exec_gateway.auth.authenticator import Caller
from mcp_exec_gateway.http.problems import HttpProblem


def check_user(user: str | None, *, caller: Caller) -> None:
    """Raise HttpProblem, a 403, if the API key may not name the user."""
    if user is None or caller.limits.allows_user(user):
        return
    message = f"the API key {caller.name} may name only {', '.join(caller.limits.users or ()) or 'none'}"
    raise HttpProblem("forbidden", 403, f"user: {message}", errors=[FieldError(field="user", message=message)])


def may_see(caller: Caller, *, creator: str | None, user: str | None) -> bool:
    """Return whether a caller may see what a creator made for a user. `creator` is proven, or has the prefix CLAIMED.

    Every route on executions asks this, and answers as if what it denies did not exist.
    """
    return not caller.limits.sees_own_only or (creator == caller.label and caller.limits.allows_user(user))
