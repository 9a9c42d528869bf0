"""One unfinished execution in memory: its newest object, its spec, its pod, and the state of its task."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from pydantic import ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec, Phase, Start, spec_digest
from mcp_exec_api.meta import explain_errors
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.protocol import Event
from mcp_exec_operator.cluster.kube.observations import is_older
from mcp_exec_operator.core.executions.deadline import RunDeadline
from mcp_exec_operator.core.executions.facts import ExecutionFacts, ExecutionSeen
from mcp_exec_operator.core.executions.outcome import (
    EndedBeforeRun,
    ExecutionOutcome,
    build_cancellation,
    build_failure,
)
from mcp_exec_operator.core.executions.part import Part
from mcp_exec_operator.core.executions.specs import SpecCache, SpecHolder
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.pools.pool import Pool

_GRACE_SECONDS: Final = 15.0
"""How long after its timeout a run that has not ended is ended by the operator."""


class PodHolder(Protocol):
    """A part that keeps the pod for the owner, also when the execution has ended."""

    name: str
    """What keeps it, for people, such as `the session s`."""

    @property
    def kept_pod(self) -> Pod | None:
        """The pod, if it is kept already; None: the execution gets one that nobody has used."""


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The pod of an execution. It is claimed in memory first, and recorded in the status before any code runs."""

    pool: Pool
    pod: Pod
    owner: str | None
    """Digest of the only owner that the sandbox serves; None if it serves one execution."""
    start: Start | None = None
    """How it came to the pod; None if another operator recorded it."""
    is_recorded: bool = False
    recorded: float | None = None
    """When it was recorded, by the monotonic clock; None if it is not, or if another operator did."""
    record_milliseconds: float | None = None
    """How long the record took; None as before."""


class ExecutionFeature(Protocol):
    """One feature, as executions of one namespace use it."""

    @property
    def events(self) -> tuple[type[Event], ...]:
        """Types of events by which code may begin to use the feature while it runs."""

    def take_part(self, execution: "Execution", *, pool: Pool, event: Event | None = None) -> Part | None:
        """Return the feature's share of an execution; None if it does not use the feature.

        That depends on the execution's spec, which may be invalid, on its pool, and on the event by which its code
        begins to use the feature. Nothing is waited for or held.
        """


@dataclass(kw_only=True, eq=False)
class Execution:
    """The newest state of an execution, and the state of its task."""

    facts: ExecutionFacts
    seen: ExecutionSeen
    """What its newest object says."""
    source: SpecHolder
    """The spec that runs."""
    spec: CodeExecutionSpec = field(init=False, repr=False)
    """The same without code and context, from its admission or adoption on."""
    parts: tuple[Part, ...] = ()
    """What features do for it."""
    asked_for: SandboxPoolSpec | None = None
    """The pool's spec for which features were asked to take part."""
    deadline: RunDeadline = field(init=False, repr=False)
    """When its run ends at the latest, from its admission or adoption on."""
    longest_seconds: float = field(init=False, repr=False)
    """The longest time of its run: the limit of the deadline, and all the time that its calls may wait."""
    holder: PodHolder | None = None
    """The part that keeps its pod, if one does."""
    binding: Binding | None = None
    """Its pod, from its claim on."""
    outcome: ExecutionOutcome | None = None
    """How it ended, once that is known."""
    task: asyncio.Task[None] | None = None
    started: bool = False
    """Whether the task has made its first step."""
    deleted: bool = False
    """Whether the object was deleted."""
    cancelled: str = ""
    """Why the operator cancels it, because its pool or its namespace is deleted, for example."""
    writing: int = 0
    """Status writes in flight, which a shutdown waits for."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a cancellation is requested, the spec changes, the pod is lost, or the pod's node changes."""

    @classmethod
    def from_object(cls, body: Object, *, specs: SpecCache, caller: str = "") -> Self:
        """Return an execution that was not known before, with its caller as `Attestor` reads it."""
        facts = ExecutionFacts.from_object(body, caller=caller)
        source = SpecHolder(cache=specs, facts=facts, spec=body.get("spec") or {})
        return cls(facts=facts, seen=ExecutionSeen.from_object(body), source=source)

    @property
    def pod_uid(self) -> str:
        """Uid of the pod that the status names; empty if the status has none."""
        return str(self.seen.status.get("podUid") or "")

    @property
    def is_unwanted(self) -> bool:
        """Whether it is to be cancelled, on request or by the operator."""
        return self.seen.cancel_requested or bool(self.cancelled)

    @property
    def log_fields(self) -> dict[str, Any]:
        """Fields of each log line about the execution."""
        facts = self.facts
        pod = self.binding.pod.name if self.binding is not None else None
        return {"execution": facts.name, "namespace": facts.namespace, "pool": facts.pool[1], "pod": pod}

    def check_wanted(self) -> None:
        """Raise EndedBeforeRun if it is to be cancelled, or if its spec is not the one that was created."""
        if self.is_unwanted:
            raise EndedBeforeRun(build_cancellation(self.cancelled))
        if self.source.changed:
            names = " and ".join(f"spec.{name}" for name in self.source.changed)
            raise EndedBeforeRun(build_failure(Reason.REJECTED, f"{names} was changed after creation"))

    def cancel(self, why: str) -> None:
        """Cancel it, because it cannot go on."""
        if not self.cancelled:
            self.cancelled = why
            self.changed()

    def observe(self, body: Object) -> None:
        """Take in a newer object. An older one, which a watch may deliver late, changes nothing."""
        before = self.seen
        if is_older(str(body["metadata"]["resourceVersion"]), before.version):
            return
        self.seen = ExecutionSeen.from_object(body)
        spec_touched = body["metadata"].get("generation") != before.body["metadata"].get("generation")
        if spec_touched and spec_digest(body.get("spec") or {}) != self.facts.digest:
            self.source.changed = self.source.list_changes(body.get("spec") or {})
            self.changed()
        if self.seen.cancel_requested and not before.cancel_requested:
            self.changed()

    def changed(self) -> None:
        """Wake up what the execution waits for or runs in."""
        self.wakeup.set()

    async def load(self) -> CodeExecutionSpec:
        """Return the whole spec.

        Raises EndedBeforeRun if it is invalid or the execution must not be bound, and what `SpecHolder.read` raises.
        """
        source, is_pending = self.source, self.seen.phase is Phase.PENDING
        given = await source.read()
        if is_pending:
            self.check_wanted()
        if source.parsed is None:
            try:
                source.parsed = CodeExecutionSpec.model_validate(given)
            except ValidationError as error:
                text = "the spec was changed after its binding and is invalid"
                if is_pending:
                    text = explain_errors(error, CodeExecutionSpec, place="spec")
                raise EndedBeforeRun(build_failure(Reason.REJECTED, text)) from error
        return source.parsed

    async def begin(self) -> None:
        """Read the spec and set the deadline, at the begin of each attempt to execute. Raises what `load` raises."""
        spec = await self.load()
        self.spec = spec.model_copy(update={"code": "", "context": {}})
        seconds = spec.timeout_seconds + _GRACE_SECONDS + sum(part.run_seconds for part in self.parts)
        self.deadline = RunDeadline(uid=self.facts.uid, seconds=seconds)
        waits = any(part.awaits_approvals for part in self.parts)
        self.longest_seconds = seconds + (spec.approval_timeout_seconds if waits else 0.0)

    def ask_features(self, features: Iterable[ExecutionFeature], pool: Pool) -> None:
        """Let the features that are not yet in it take part: it is new, or its pool has changed since."""
        self.asked_for = pool.shape.spec
        present = {type(part) for part in self.parts}
        found = (feature.take_part(self, pool=pool) for feature in features)
        self.parts += tuple(part for part in found if part is not None and type(part) not in present)

    def notify_parts(self, event: Event, *, features: Iterable[ExecutionFeature]) -> None:
        """Pass an event of the run to the parts. A feature that the code begins to use takes part."""
        listening = [part for part in self.parts if type(event) in part.events]
        if not listening and self.binding is not None:
            pool = self.binding.pool
            new = [each.take_part(self, pool=pool, event=event) for each in features if type(event) in each.events]
            listening = [part for part in new if part is not None]
            self.parts += tuple(listening)
        for part in listening:
            part.on_event(event)
