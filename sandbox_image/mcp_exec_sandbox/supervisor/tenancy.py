"""Whom the sandbox serves, and the executions that it has accepted."""

from mcp_exec_sandbox.supervisor.execution.job_request import ExecutionRequest

MAX_USES = 100_000
"""Executions of one sandbox, whose ids are kept so that none runs twice. A pool sets a far lower limit."""


class StateConflict(Exception):
    """The sandbox's state, or what it has accepted before, does not allow the request."""


class InterpreterEnded(Exception):
    """The interpreter of the sandbox's session has ended. Its variables are gone."""


class Tenancy:
    """The one owner of a sandbox, or the one execution without an owner."""

    def __init__(self) -> None:
        self._accepted: set[str] = set()
        self.owner: str | None = None
        """Whom the sandbox serves for ever, once it has accepted a job of an owner."""
        self.last_id: str | None = None
        """The last accepted execution."""
        self.is_session = False
        """Whether the last execution belongs to a session."""

    @property
    def uses(self) -> int:
        """Executions accepted so far."""
        return len(self._accepted)

    def check(self, request: ExecutionRequest) -> None:
        """Check that the sandbox may serve the job, whatever its state.

        Raises:
            StateConflict: it may not.
        """
        if not self._accepted:
            return
        if self.owner is None or request.id in self._accepted:
            raise StateConflict("this sandbox has accepted an execution before")
        if request.owner != self.owner:
            raise StateConflict("this sandbox serves another owner")
        if self.uses >= MAX_USES:
            raise StateConflict(f"this sandbox has accepted {MAX_USES} executions")

    def accept(self, request: ExecutionRequest) -> None:
        """Record an execution that `check` has allowed."""
        self._accepted.add(request.id)
        self.owner, self.last_id, self.is_session = request.owner, request.id, request.session
