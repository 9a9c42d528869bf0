"""Denied calls of executions that don't stop to ask: the first of each have records of their own, the rest are counted.

A loop over a denied tool, or beyond the budget, costs the sandbox next to nothing. What is counted is written as one
record an execution and reason, when the execution ends and every few seconds until then.
"""

import logging
import sqlite3
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import uuid4

from mcp_exec_api.meta import now
from mcp_exec_api.tool_server import Action
from mcp_exec_broker.audit.log import AuditLog, AuditRecord
from mcp_exec_broker.calls.call import Call
from mcp_exec_broker.errors import CallOutcome, ErrorKind, ErrorReason, ToolCallError
from mcp_exec_common.broker.grants import Grant

log = logging.getLogger(__name__)

OWN_RECORDS: Final = 100
"""Denied calls of one execution that have a record each."""
_MOST: Final = 1000
"""Executions and reasons that are counted at once."""


@dataclass(kw_only=True)
class _Count:
    grant: Grant
    outcome: CallOutcome
    first: datetime
    last: datetime
    calls: int = 0


@dataclass(kw_only=True, eq=False)
class DenialCounter:
    """What was counted and is not written yet. When the broker is killed, that is lost: some seconds."""

    audit: AuditLog
    _counts: dict[tuple[str, ErrorReason], _Count] = field(default_factory=dict)

    def counts(self, run: Call, failure: ToolCallError) -> bool:
        """Counts a call that was denied, where it is one too many for a record of its own; says whether it did."""
        if failure.kind is not ErrorKind.DENIED or failure.reason is None:
            return False
        run.account.denied += 1
        if run.account.denied <= OWN_RECORDS:
            return False
        key, moment = (run.grant.execution, failure.reason), now()
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= _MOST:
                self.write()
            if len(self._counts) >= _MOST:  # nothing can be written, which the call's own record will say
                return False
            count = _Count(grant=run.grant, outcome=failure.outcome, first=moment, last=moment)
            self._counts[key] = count
        count.calls += 1
        count.last = moment
        return True

    def write(self, execution: str | None = None) -> None:
        """Writes down what was counted, of one execution (its uid) or all; what can't be written stays counted."""
        for key in [key for key in self._counts if execution is None or key[0] == execution]:
            try:
                self._write(key[1], self._counts[key])
            except sqlite3.Error as error:
                log.warning("denied calls are not in the audit yet: %s", error)
                return
            del self._counts[key]

    def _write(self, reason: ErrorReason, count: _Count) -> None:
        grant = count.grant
        call = AuditRecord(
            id=str(uuid4()),
            namespace=grant.namespace,
            execution=grant.name,
            uid=grant.execution,
            pool=grant.pool,
            caller=grant.caller,
            user=grant.user,
            server="",
            tool="",
            digest="",
            arguments="",
            decision=Action.DENY,
            reason=reason,
        )
        said = f"{count.calls} more calls were denied, after {OWN_RECORDS} with a record each"
        self.audit.many(
            call, count.outcome, calls=count.calls, first=count.first, last=count.last, error=f"{reason}: {said}"
        )
