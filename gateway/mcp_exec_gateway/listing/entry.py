"""One execution as lists show it, in little memory."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from sys import intern
from typing import Any, Final, Self

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.constants import LABEL_CONVERSATION, LABEL_USE_CASE
from mcp_exec_api.execution_state import read_created_at
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.pages import TableRow

LISTED: Final = "listed"
"""Key of what a table's row has of a spec. An object of a row has no spec, so that it is not taken for a whole one."""
_ENTRY_BYTES: Final = 900
"""Memory of an entry and of its place in the order, without names, labels and texts (measured: 700 to 850)."""
_MAX_LABELS: Final = 64
_MAX_LABEL_CHARACTERS: Final = 4096
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

EntryPosition = tuple[int, str]
"""Place of an execution in the order: microseconds of its creation since 1970, and its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionEntry:
    """One execution in a list. Strings that many executions share are interned."""

    name: str
    created_at: str
    created: int
    """Microseconds from 1970 to the creation. It changes once at most: the operator may record a finer time."""
    pool: str
    caller: str
    user: str | None
    """User of the execution, or empty; None if the list of an older definition of the resource does not say."""
    description: str
    labels: dict[str, str]
    """Labels with all prefixes; at most 64, and of kubectl's excess labels the first ones alone."""
    phase: str
    reason: str
    start: str
    pod_name: str
    finished_at: str
    duration: str

    @classmethod
    def from_object(cls, execution: Object, *, caller: str) -> Self:
        """Return the entry of an object, or of a table's row as `read_row` returns it."""
        metadata, status = execution["metadata"], execution.get("status") or {}
        spec = execution.get("spec") or execution.get(LISTED) or {}
        created_at = read_created_at(execution)
        return cls(
            name=metadata["name"],
            created_at=created_at,
            created=_count_microseconds(created_at),
            pool=intern(str((spec.get("poolRef") or {}).get("name") or "default")),
            caller=intern(caller),
            user=None if (user := spec.get("user", "")) is None else intern(str(user)),
            description=str(spec.get("description") or "")[:200],
            labels=_bound_labels(metadata.get("labels") or {}),
            phase=intern(str(status.get("phase") or Phase.PENDING)),
            reason=intern(str(status.get("reason") or "")),
            start=intern(str(status.get("start") or "")),
            pod_name=str(status.get("podName") or ""),
            finished_at=str(status.get("finishedAt") or ""),
            duration=str(status.get("duration") or ""),
        )

    @property
    def position(self) -> EntryPosition:
        """The place in the order."""
        return self.created, self.name

    @property
    def conversation(self) -> str:
        """Conversation that the execution is part of."""
        return self.labels.get(LABEL_CONVERSATION, "")

    @property
    def use_case(self) -> str:
        """What the execution is for."""
        return self.labels.get(LABEL_USE_CASE, "")

    @property
    def weight(self) -> int:
        """Bytes of memory, about."""
        texts = len(self.name) + len(self.pod_name) + 4 * (len(self.description) + len(self.user or ""))
        return _ENTRY_BYTES + texts + sum(len(key) + len(value) + 100 for key, value in self.labels.items())


def read_row(row: TableRow) -> Object:
    """Return what a table's row shows of an execution as an object without spec."""
    cells = row.cells
    status = {
        "phase": cells.get("Phase"),
        "reason": cells.get("Reason"),
        "start": cells.get("Start"),
        "podName": cells.get("Pod"),
        "createdAt": cells.get("Created"),
        "finishedAt": cells.get("Finished"),
        "duration": cells.get("Duration"),
        "storedBytes": cells.get("Bytes"),
    }
    listed: dict[str, Any] = {
        "poolRef": {"name": cells.get("Pool")},
        "description": cells.get("Description"),
        "user": (cells["User"] or "") if "User" in cells else None,
    }
    return {
        "metadata": row.metadata,
        LISTED: listed,
        "status": {name: value for name, value in status.items() if value},
    }


def _count_microseconds(moment: str) -> int:
    try:
        return (datetime.fromisoformat(moment) - _EPOCH) // _MICROSECOND
    except (ValueError, TypeError):
        return 0


def _bound_labels(labels: Object) -> dict[str, str]:
    bounded: dict[str, str] = {}
    size = 0
    for key, value in labels.items():
        size += len(key) + len(value)
        if len(bounded) >= _MAX_LABELS or size > _MAX_LABEL_CHARACTERS:
            break
        bounded[intern(key)] = intern(value)
    return bounded
