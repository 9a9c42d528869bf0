"""State of an execution as a list shows it: what decisions need before the execution itself is read."""

from dataclasses import dataclass
from typing import Self

from mcp_exec_api.code_execution import Phase
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.pages import TableRow
from mcp_exec_common.kube.reflector import ObjectKey


@dataclass(frozen=True, kw_only=True)
class ExecutionRow:
    """One execution in a list. It has neither code nor context nor output, which a namespace may have gigabytes of."""

    key: ObjectKey
    uid: str
    version: str
    """Resource version."""
    created: str
    """Creation time in whole seconds."""
    phase: Phase | None
    """None if a newer version of the operator wrote one that is unknown here."""
    finished_at: str | None
    ttl_seconds: float | None
    """Seconds after its end at which it is due for deletion; None if the CRD in the cluster is an older one."""
    stored_bytes: int | None
    """Bytes of the object, at most; None if an older version of the operator wrote its end."""
    metadata: Object
    """Metadata of the object."""

    @classmethod
    def from_table(cls, row: TableRow) -> Self:
        """Return the row of the API server's table."""
        meta, cells = row.metadata, row.cells
        try:
            phase = Phase(cells.get("Phase") or Phase.PENDING)
        except ValueError:
            phase = None
        return cls(
            key=(meta["namespace"], meta["name"]),
            uid=meta["uid"],
            version=str(meta["resourceVersion"]),
            created=str(meta["creationTimestamp"]),
            phase=phase,
            finished_at=cells.get("Finished"),
            ttl_seconds=cells.get("TTL"),
            stored_bytes=cells.get("Bytes"),
            metadata=meta,
        )

    @property
    def is_expirable(self) -> bool:
        """Whether it has ended and the row shows when it is due for deletion."""
        return (
            self.phase is not None
            and self.phase.finished
            and self.finished_at is not None
            and self.ttl_seconds is not None
        )
