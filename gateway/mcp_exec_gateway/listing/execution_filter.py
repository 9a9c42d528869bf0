"""Filter of a list of executions, from the query of a request."""

from dataclasses import dataclass
from typing import Self

from mcp_exec_gateway.auth.callers import Caller, format_caller_label, may_see
from mcp_exec_gateway.http.problems import invalid_field
from mcp_exec_gateway.http.query_params import ListQuery
from mcp_exec_gateway.listing.entry import ExecutionEntry
from mcp_exec_gateway.listing.label_selector import LabelSelector, parse_label_selector


@dataclass(frozen=True, kw_only=True)
class ExecutionFilter:
    """What an execution has to be to be listed. None and empty values mean any."""

    viewer: Caller
    """Who lists. Executions that it may not see are not listed."""
    phase: str | None
    callers: frozenset[str]
    """Spellings of the caller, of which one is the execution's."""
    conversation: str | None
    use_case: str | None
    labels: LabelSelector

    @classmethod
    def from_query(cls, query: ListQuery, *, viewer: Caller) -> Self:
        """Read the parameters. Raises HttpProblem, a 422, for an invalid label selector."""
        try:
            labels = parse_label_selector(query.label_selector or "")
        except ValueError as error:
            raise invalid_field("labelSelector", str(error)) from error
        caller = query.caller
        return cls(
            viewer=viewer,
            phase=query.phase,
            callers=frozenset((caller, format_caller_label(caller)) if caller else ()),
            conversation=query.conversation,
            use_case=query.use_case,
            labels=labels,
        )

    def matches(self, entry: ExecutionEntry) -> bool:
        """Return whether an execution is listed."""
        return (
            (self.phase is None or entry.phase == self.phase)
            and (not self.callers or entry.caller in self.callers)
            and (self.conversation is None or entry.conversation == self.conversation)
            and (self.use_case is None or entry.use_case == self.use_case)
            and self.labels.matches(entry.labels)
            and self._is_visible(entry)
        )

    def _is_visible(self, entry: ExecutionEntry) -> bool:
        if entry.user is None:
            return not self.viewer.limits.sees_own_only
        return may_see(self.viewer, creator=entry.caller, user=entry.user)
