"""One execution in memory, from the moment that it is seen until it has ended."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mcp_exec_api.code_execution import IMMUTABLE, Phase, spec_digest
from mcp_exec_api.constants import ANNOTATION_VARIANT_KEY, LABEL_CALLER
from mcp_exec_api.meta import now
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key


@dataclass(kw_only=True, eq=False)
class Entry:
    """What is known of an execution: the newest of its object, and what its task does."""

    body: Object
    """Its object, the newest that is known."""
    key: ObjectKey
    uid: str
    spec: Object
    """Its spec as it was first seen: what runs."""
    digest: str
    first_seen: datetime
    pool: ObjectKey
    """The pool that it asks for."""
    caller: str = ""
    """Who created it by way of the gateway; empty for all others of the namespace."""
    variant_key: str = ""
    """What it is assigned to a variant of its pool by: what its annotation says, else its caller, else its name."""
    pod: str | None = None
    """The pod that it holds or is bound to."""
    task: asyncio.Task[None] | None = None
    deleted: bool = False
    """Whether its object is gone."""
    started: bool = False
    """Whether its task has had its first turn."""
    writing: int = 0
    """Writes of its status that are under way: a shutdown waits for them."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a cancellation is requested, the spec changes, the pod is lost, or the pod's node changes."""
    changed: list[str] = field(default_factory=list)
    """Fields of the spec that somebody changed although they can't be."""

    @classmethod
    def of(cls, body: Object) -> "Entry":
        """The entry of an execution that was not known before."""
        meta, spec = body["metadata"], body.get("spec") or {}
        name = (spec.get("poolRef") or {}).get("name") or "default"
        caller = str((meta.get("labels") or {}).get(LABEL_CALLER) or "")
        return cls(
            body=body,
            key=object_key(body),
            uid=meta["uid"],
            spec=spec,
            digest=spec_digest(spec),
            first_seen=now(),
            pool=(meta["namespace"], str(name)),
            caller=caller,
            variant_key=str((meta.get("annotations") or {}).get(ANNOTATION_VARIANT_KEY) or caller or meta["name"]),
            pod=(body.get("status") or {}).get("podName"),
        )

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.key[0]

    @property
    def name(self) -> str:
        """Its name."""
        return self.key[1]

    @property
    def status(self) -> Object:
        """Its status as last seen."""
        return self.body.get("status") or {}

    @property
    def phase(self) -> Phase:
        """Its phase as last seen."""
        return phase_of(self.body)

    @property
    def version(self) -> str:
        """Its resource version as last seen."""
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked to cancel it."""
        return bool((self.body.get("spec") or {}).get("cancelRequested"))

    @property
    def log_fields(self) -> dict[str, Any]:
        """What each of its log lines has."""
        return {"execution": self.name, "namespace": self.namespace, "pool": self.pool[1], "pod": self.pod}

    def take_in(self, body: Object) -> None:
        """Takes in a newer object; an older one, which a watch may tell late, changes nothing."""
        if is_older(body, self.body):
            return
        touched = body["metadata"].get("generation") != self.body["metadata"].get("generation")
        asked_before = self.cancel_requested
        self.body = body
        if touched and spec_digest(body.get("spec") or {}) != self.digest:
            self.changed = changed_fields(self.spec, body.get("spec") or {})
            self.wakeup.set()
        if self.cancel_requested and not asked_before:
            self.wakeup.set()


def phase_of(body: Object) -> Phase:
    """The phase of an execution, Pending where it has none yet."""
    return Phase((body.get("status") or {}).get("phase") or Phase.PENDING)


def is_older(body: Object, than: Object) -> bool:
    """Whether an object is an earlier version than another; where versions are no numbers, it is not."""
    versions = [str(each["metadata"]["resourceVersion"]) for each in (body, than)]
    return all(version.isdigit() for version in versions) and int(versions[0]) < int(versions[1])


def changed_fields(before: Object, after: Object) -> list[str]:
    """The immutable fields that differ."""
    return [name for name in IMMUTABLE if before.get(name) != after.get(name)]
