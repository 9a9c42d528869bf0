"""How the way of an execution ends before its code runs, or in somebody else's hands."""

from mcp_exec_operator.executions.status import Outcome


class Decided(Exception):
    """The execution ends without running: `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class Superseded(Exception):
    """Somebody else has bound or ended the execution."""
