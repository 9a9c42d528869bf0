"""How many sessions there may be: which of those without a pod to delete, and whether another may be created. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from mcp_exec_api.files import Owner
from mcp_exec_operator.features.sessions.record import SessionRecord

KEEP_UNUSED: Final = timedelta(hours=1)
"""How long the object of a session without a pod is kept, so that the next execution can report its end."""


def find_disposable(
    unused: Iterable[SessionRecord], *, moment: datetime, max_unused: int
) -> tuple[list[SessionRecord], datetime | None]:
    """Return the sessions without a pod to delete, and when the next one is due. No execution uses them.

    Of one owner, the `max_unused` that were used last are kept, so that a caller whose code ends each new session at
    once leaves no unbounded number of objects. Objects that somebody created with limits of their own stay.
    """
    by_owner: dict[Owner, list[SessionRecord]] = defaultdict(list)
    for record in unused:
        if record.seen.managed and not record.occupies:
            by_owner[record.owner].append(record)
    disposable: list[SessionRecord] = []
    due: datetime | None = None
    for records in by_owner.values():
        records.sort(key=lambda each: each.unused_since, reverse=True)
        for position, record in enumerate(records):
            expiry = record.unused_since + KEEP_UNUSED
            if position >= max_unused or expiry <= moment:
                disposable.append(record)
            else:
                due = min(due or expiry, expiry)
    return disposable, due


def find_excess(records: Iterable[SessionRecord], owner: Owner, *, max_per_owner: int, max_per_namespace: int) -> str:
    """Return which bound another session of an owner would exceed, or an empty text. Those without a pod are free."""
    others = [each for each in records if each.key[0] == owner.namespace and each.occupies]
    own = sum(each.owner == owner for each in others)
    if own >= max_per_owner:
        return f"the owner has {own} sessions with a pod; at most {max_per_owner} are allowed"
    if len(others) >= max_per_namespace:
        return f"the namespace has {len(others)} sessions with a pod; at most {max_per_namespace} are allowed"
    return ""
