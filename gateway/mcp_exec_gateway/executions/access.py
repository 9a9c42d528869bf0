"""The executions that a caller may see: all of its namespace, or only its own, if its API key is limited to them."""

from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.auth.callers import Caller, may_see
from mcp_exec_gateway.http.problems import not_found


def may_see_execution(execution: Object, *, caller: Caller, attestor: Attestor) -> bool:
    """Return whether a caller may see an execution, by the proof of who created it."""
    if not caller.limits.sees_own_only:
        return True
    user = (execution.get("spec") or {}).get("user")
    return may_see(caller, creator=attestor.read_caller(execution), user=user)


def check_access(execution: Object, *, caller: Caller, attestor: Attestor) -> Object:
    """Return the execution if the caller may see it. Raises HttpProblem, the 404 of one that does not exist."""
    if may_see_execution(execution, caller=caller, attestor=attestor):
        return execution
    raise not_found(execution["metadata"]["namespace"], execution["metadata"]["name"])
