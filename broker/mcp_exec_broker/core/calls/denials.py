"""Counter of denied calls, for executions and callers that repeat them.

A loop over a denied tool costs the sandbox almost nothing. The first denied calls of an execution, and of a caller in
ten minutes, have an audit record each; the rest are counted, and written as one record per execution or caller and
reason, at the execution's end and every few seconds until then.
"""

import logging
import sqlite3
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_api.tool_server import Action
from mcp_exec_broker.core.calls.audit import CallAudit, build_record, describe_rights
from mcp_exec_broker.core.calls.call import Call
from mcp_exec_broker.core.errors import CallOutcome, ErrorKind, ErrorReason, ToolCallError
from mcp_exec_common.broker.grants import CallRights

log = logging.getLogger(__name__)

MAX_OWN_RECORDS: Final = 100
"""Denied calls of one execution or caller with a record each."""
_MAX_COUNTS: Final = 1000
"""Pairs of execution or caller and reason counted at once."""

_CountKey = tuple[str, ErrorReason]


@dataclass(kw_only=True)
class _Count:
    grant: CallRights
    outcome: CallOutcome
    first: datetime
    last: datetime
    calls: int = 0


@dataclass(kw_only=True, eq=False)
class DenialCounter:
    """Denied calls that were counted and not written yet. If the broker is killed, these few seconds are lost."""

    audit: CallAudit
    _counts: dict[_CountKey, _Count] = field(default_factory=dict)

    async def count(self, call: Call, error: ToolCallError) -> bool:
        """Count a denied call beyond those with a record each, and return whether it was counted."""
        if error.kind is not ErrorKind.DENIED or error.reason is None:
            return False
        call.quota.denied_calls += 1
        if call.quota.denied_calls <= MAX_OWN_RECORDS:
            return False
        key = (call.grant.account, error.reason)
        if key not in self._counts and len(self._counts) >= _MAX_COUNTS:
            await self.write_counts()
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= _MAX_COUNTS:  # writing failed, and so will the call's own record
                return False
            count = self._counts[key] = _Count(grant=call.grant, outcome=error.outcome, first=now(), last=now())
        count.calls += 1
        count.last = now()
        return True

    async def write_counts(self, execution: str | None = None) -> None:
        """Write the counts of one execution, given by its UID, or of all. Counts that cannot be written are kept."""
        for key in [key for key in self._counts if execution is None or key[0] == execution]:
            count = self._counts.pop(key, None)
            if count is None:  # another task writes it
                continue
            try:
                await self._write(key[1], count)
            except sqlite3.Error as error:
                self._restore(key, count)
                log.warning("cannot write denied calls to the audit log: %s", error)
                return

    def _restore(self, key: _CountKey, count: _Count) -> None:
        later = self._counts.get(key)
        if later is not None:
            count.calls, count.last = count.calls + later.calls, later.last
        self._counts[key] = count

    async def _write(self, reason: ErrorReason, count: _Count) -> None:
        record = build_record(
            **describe_rights(count.grant),
            server="",
            tool="",
            decision=Action.DENY,
            reason=reason,
            at=count.first,
            ended_at=count.last,
            outcome=count.outcome,
            calls=count.calls,
            error=f"{reason}: {count.calls} more calls were denied, after {MAX_OWN_RECORDS} with a record each",
        )
        await self.audit.record_denials(record)
