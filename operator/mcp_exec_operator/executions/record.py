"""One unfinished execution in memory."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from mcp_exec_api.code_execution import IMMUTABLE, Phase, spec_digest
from mcp_exec_api.constants import ANNOTATION_VARIANT_KEY
from mcp_exec_api.execution_state import read_created_at, read_phase
from mcp_exec_api.meta import now
from mcp_exec_common.broker.attestations import CLAIMED
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_operator.executions.binding import Binding

_MAX_WATCH_DELAY: Final = timedelta(seconds=2)


@dataclass(kw_only=True, eq=False)
class ExecutionRecord:
    """The newest object of an execution, and the state of its task."""

    body: Object
    """The newest object."""
    key: ObjectKey
    uid: str
    spec: Object
    """The spec as it was first seen, which is the one that runs."""
    digest: str
    first_seen: datetime
    pool: ObjectKey
    """Namespace and name of the requested pool."""
    caller: str = ""
    """The caller who created it through the gateway; empty for all other executions of the namespace."""
    claimed_caller: str = ""
    """The caller that it names without a proof, as `claimed:NAME`. It is recorded and has no effect."""
    variant_key: str = ""
    """The key that assigns it to a variant of the pool: its annotation, else its caller, else its name."""
    pod: str | None = None
    """Name of the pod that it has or is bound to."""
    binding: Binding | None = None
    task: asyncio.Task[None] | None = None
    deleted: bool = False
    """Whether the object was deleted."""
    withdrawn: str = ""
    """Why the operator cancels it: its pool or its namespace is deleted."""
    started: bool = False
    """Whether the task has made its first step."""
    writing: int = 0
    """Status writes in flight, which a shutdown waits for."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a cancellation is requested, the spec changes, the pod is lost, or the pod's node changes."""
    changed: list[str] = field(default_factory=list)
    """Immutable fields of the spec that were changed, on a cluster that did not reject it."""

    @classmethod
    def from_object(cls, body: Object, *, caller: str = "") -> "ExecutionRecord":
        """Return the record of an execution that was not known before, with its caller as `Attestor` reads it."""
        meta, spec = body["metadata"], body.get("spec") or {}
        pool = (spec.get("poolRef") or {}).get("name") or "default"
        claimed = caller if caller.startswith(CLAIMED) else ""
        caller = "" if claimed else caller
        return cls(
            body=body,
            key=object_key(body),
            uid=meta["uid"],
            spec=spec,
            digest=spec_digest(spec),
            first_seen=now(),
            pool=(meta["namespace"], str(pool)),
            caller=caller,
            claimed_caller=claimed,
            variant_key=str((meta.get("annotations") or {}).get(ANNOTATION_VARIANT_KEY) or caller or meta["name"]),
            pod=(body.get("status") or {}).get("podName"),
        )

    @property
    def namespace(self) -> str:
        """The execution's namespace."""
        return self.key[0]

    @property
    def name(self) -> str:
        """The execution's name."""
        return self.key[1]

    @property
    def status(self) -> Object:
        """The newest status."""
        return self.body.get("status") or {}

    @property
    def pod_uid(self) -> str:
        """Uid of the pod that the status names; empty if the status has none."""
        return str(self.status.get("podUid") or "")

    @property
    def phase(self) -> Phase | None:
        """The newest phase; None if a newer version wrote one that is unknown here."""
        return read_phase(self.body)

    @property
    def version(self) -> str:
        """The newest resource version."""
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def cancel_requested(self) -> bool:
        """Whether a cancellation is requested."""
        return bool((self.body.get("spec") or {}).get("cancelRequested"))

    @property
    def is_unwanted(self) -> bool:
        """Whether it is to be cancelled, on request or by the operator."""
        return self.cancel_requested or bool(self.withdrawn)

    def withdraw(self, why: str) -> None:
        """Cancel it, because it cannot go on."""
        if not self.withdrawn:
            self.withdrawn = why
            self.wakeup.set()

    @property
    def log_fields(self) -> dict[str, Any]:
        """Fields of each log line about the execution."""
        return {"execution": self.name, "namespace": self.namespace, "pool": self.pool[1], "pod": self.pod}

    def observe(self, body: Object) -> None:
        """Take in a newer object. An older one, which a watch may deliver late, changes nothing."""
        if is_older(body, self.body):
            return
        spec_touched = body["metadata"].get("generation") != self.body["metadata"].get("generation")
        was_requested = self.cancel_requested
        self.body = body
        if spec_touched and spec_digest(body.get("spec") or {}) != self.digest:
            self.changed = list_changed_fields(self.spec, body.get("spec") or {})
            self.wakeup.set()
        if self.cancel_requested and not was_requested:
            self.wakeup.set()

    def created_at(self) -> datetime:
        """Return the time of creation.

        If the object has whole seconds only, the time at which it was first seen is finer, if that was at once.
        """
        recorded = read_created_at(self.body)
        created = datetime.fromisoformat(recorded)
        if recorded != self.body["metadata"]["creationTimestamp"]:
            return created
        return self.first_seen if timedelta() <= self.first_seen - created < _MAX_WATCH_DELAY else created


def is_older(body: Object, than: Object) -> bool:
    """Return whether an object is an earlier version than another; False if the versions are not numbers."""
    version, other = body["metadata"]["resourceVersion"], than["metadata"]["resourceVersion"]
    return str(version).isdigit() and str(other).isdigit() and int(version) < int(other)


def list_changed_fields(before: Object, after: Object) -> list[str]:
    """Return the names of the immutable fields that differ."""
    return [name for name in IMMUTABLE if before.get(name) != after.get(name)]
