"""The parts of one pool, a part for each variant: who gets which, how many pods each has, and which are out. No I/O.

Each part is a pool of its own (pods, queue, pauses after failures, turnover), of one spec and one scaling. The base is
all there is of a pool without variants; with variants it has what pods were there before.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from mcp_exec_api.code_execution import Reason
from mcp_exec_api.constants import ANNOTATION_RESTORE, LABEL_VARIANT
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.pods.cache import Pod, PodCounts
from mcp_exec_operator.pods.manifest import template_hash
from mcp_exec_operator.variants.assignment import assign, shares
from mcp_exec_operator.variants.outlier_detection import (
    FAULTS,
    Ejection,
    VariantHealth,
    VariantHealthSnapshot,
    detect_outlier,
    select_rotation,
)

if TYPE_CHECKING:
    from mcp_exec_operator.pools.partition import Partition

log = logging.getLogger(__name__)

_MAX_MESSAGE: Final = 512
_MAX_ASKED: Final = 128
"""What of the annotation is read: names have 63 characters at most."""


@dataclass(kw_only=True, eq=False)
class WarmPool:
    """All parts of one pool."""

    base: "Partition"
    make: Callable[[str], "Partition"]
    """Makes the part of a variant."""
    parts: dict[str, "Partition"] = field(default_factory=dict)
    """By variant; those too that the spec does not have any more, until their pods are gone."""
    weights: dict[str, int] = field(default_factory=dict)
    """Of the spec's variants."""
    rotation: tuple[str, ...] = ()
    """The variants that callers are assigned to."""
    out: dict[str, Ejection] = field(default_factory=dict)
    """Those that were taken out of rotation."""
    restored: str | None = None
    """The value of the annotation that was acted upon last."""
    _records: dict[str, VariantHealth] = field(default_factory=dict)

    def __iter__(self) -> Iterator["Partition"]:
        """All parts, the base first."""
        yield self.base
        yield from self.parts.values()

    @property
    def counts(self) -> PodCounts:
        """How many pods of all parts are in each state."""
        return sum((part.inventory.counts for part in self.parts.values()), self.base.inventory.counts)

    @property
    def queued(self) -> int:
        """Executions that wait for a pod of any part."""
        return sum(len(part.waiters) for part in self)

    def remember(self, status: Object) -> None:
        """Takes over what an operator before this one decided."""
        self.restored = status.get("restored")
        self.out = {
            str(each["name"]): Ejection(
                reason=str(each["reason"]),
                message=str(each.get("message") or each["reason"]),
                template=str(each.get("template") or ""),
            )
            for each in status.get("variants") or ()
            if each.get("reason")
        }

    def configure(self) -> None:
        """Takes in the base's spec, which is None where there is none or it is no good."""
        base, spec = self.base, self.base.spec
        if spec is not None:
            self.weights = {variant.name: variant.weight for variant in spec.variants}
            self.out = {name: out for name, out in self.out.items() if name in self.weights}
            for variant in spec.variants:
                part = self.parts.setdefault(variant.name, self.make(variant.name))
                part.spec = spec.build_variant_spec(variant)
                part.template = template_hash(part.spec, variant=variant.name)
                if variant.name in self.out and self.out[variant.name].template != part.template:
                    self._restore(variant.name)
            if not self.weights:
                base.allotted, base.held = None, 0
        for name, part in self.parts.items():
            if spec is None:
                part.spec = None
            elif name not in self.weights:
                part.spec = spec.model_copy(update={"variants": []})
            part.newest, part.uid, part.generation = base.newest, base.uid, base.generation
            part.invalid, part.refusal, part.failure = base.invalid, None, None
            part.lookout.look_at = 0.0
            part.backoff.succeed()
            part.kicked.set()
        self._rotate(base.clock())

    def heed(self, body: Object) -> None:
        """Puts the variant back into rotation that the pool's annotation names, once for each of its values."""
        asked = str((body["metadata"].get("annotations") or {}).get(ANNOTATION_RESTORE) or "")[:_MAX_ASKED] or None
        if asked == self.restored:
            return
        self.restored = asked
        self._restore((asked or "").partition("@")[0])
        self._rotate(self.base.clock())
        self.base.kicked.set()

    def assign(self, key: str) -> "Partition":
        """The part whose pods a caller gets."""
        if not self.rotation:
            return self.base
        weights = {name: self.weights[name] for name in self.rotation}
        return self.parts[assign(key, weights, pool=f"{self.base.namespace}/{self.base.name}")]

    def is_open(self, part: "Partition") -> bool:
        """Whether callers are assigned to a part."""
        return part.variant in self.rotation if part.variant else not self.rotation

    def part_of(self, item: Object) -> "Partition":
        """The part that a pod's object belongs to: the one that knows it, else the one whose label it has."""
        meta = item["metadata"]
        variant = (meta.get("labels") or {}).get(LABEL_VARIANT, "")
        return self.part_with(meta["name"]) or self.parts.get(variant, self.base)

    def part_with(self, pod: str) -> "Partition | None":
        """The part that knows a pod of that name."""
        return next((part for part in self if part.inventory.get(pod) is not None), None)

    def adopt(self, pod: str, *, now: float) -> tuple["Partition", Pod]:
        """An execution has the pod by its status: the pod, busy, and its part."""
        part = self.part_with(pod) or self.base
        return part, part.inventory.adopt(pod, now=now)

    def elsewhere(self, part: "Partition") -> int:
        """Pods of the other parts, which take of `maxPods` too."""
        return self.counts.total - part.inventory.counts.total if self.parts else 0

    def record(self, variant: str) -> VariantHealth:
        """What is remembered of a variant."""
        return self._records.setdefault(variant, VariantHealth())

    def ended(self, variant: str, reason: Reason, *, now: float) -> None:
        """A run in a pod of the variant ended."""
        if variant in self.weights:
            self.record(variant).ran(fault=reason in FAULTS, now=now)
            if reason in FAULTS:
                self.parts[variant].kicked.set()

    def decide(self, now: float) -> None:
        """Decides how many pods should be warm, of each part, and what variants are in rotation."""
        base = self.base
        if base.spec is None:
            return
        base.scaler.recommend(base.spec, waiting=self.queued, counts=self.counts, now=now)
        if self.parts:
            self._judge(now)
            self._allot()

    def discard(self) -> list["Partition"]:
        """Forgets the parts that the spec does not have and that have neither pods nor anybody that waits."""
        idle = [part for part in self.parts.values() if not part.inventory.counts.total and not part.waiters]
        gone = [part for part in idle if part.variant not in self.weights]
        for part in gone:
            del self.parts[part.variant]
            self._records.pop(part.variant, None)
        return gone

    def remove(self) -> None:
        """The pool was deleted."""
        self.weights, self.rotation, self.out, self.restored = {}, (), {}, None
        self.base.allotted, self.base.held = None, 0
        for part in self.parts.values():
            part.remove()

    def _judge(self, now: float) -> None:
        while (verdict := detect_outlier({name: self._health(name, now) for name in self.rotation})) is not None:
            name, reason = verdict
            health, part = self._health(name, now), self.parts[name]
            if reason == "StartFailures":
                text = f"{health.failures} pods in a row did not become ready: {self.record(name).last_failure}"
            else:
                text = f"{health.faults} of its last {health.runs} runs ended by its fault, far more than its siblings'"
            message = text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"
            self.out[name] = Ejection(reason=reason, message=message, template=part.template)
            log.warning("variant %s is out of rotation: %s", name, message, extra={"pool": self.base.name})
            self._rotate(now)

    def _allot(self) -> None:
        """Gives each part its share. Pods that are too many stay while others lack in their place."""
        total = self.base.total_desired
        share = shares(total, {name: self.weights[name] for name in self.rotation})
        before = {part: (part.allotted, part.held, part.isolated) for part in self}
        for part in self:
            if self.weights or part.variant:
                # its callers get no other's pods: where the share is none, they would wait in vain
                least = 1 if part.waiters and part.open else 0
                part.allotted = max(least, share.get(part.variant, 0))
            part.isolated, part.exposed = self.base.isolated, self.base.exposed
        counts = self.counts
        stranded = [part for part in self if part.waiters and part.open and not part.inventory.counts.total]
        room = self._most_pods() - counts.busy - counts.terminating
        if self.weights and stranded and sum(part.desired for part in self) > room:
            # the first pod of one comes before the last of another
            largest = max((part for part in self if part not in stranded), key=lambda part: part.desired)
            largest.allotted = max(0, largest.desired - 1)
        lacking = {part: max(0, part.standing - part.inventory.counts.warm) for part in self}
        stuck = counts.total >= self._most_pods() or any(
            lacks and part.refusal is not None and part.refusal.reason is Reason.QUOTA_EXCEEDED
            for part, lacks in lacking.items()
        )
        # one goes where no pod can come otherwise, and the next when that one's place is taken
        give = 1 if stuck and not counts.coming and not counts.terminating else 0
        for part in self:
            too_many = max(0, part.inventory.counts.warm - part.desired)
            held = min(too_many, sum(lacking.values()) - lacking[part])
            if give and held:
                held, give = held - 1, 0
            part.held = held
            if before[part] != (part.allotted, part.held, part.isolated):
                part.kicked.set()

    def _most_pods(self) -> int:
        return self.base.spec.max_pods if self.base.spec is not None else 0

    def _restore(self, name: str) -> None:
        self.out.pop(name, None)
        self._records.pop(name, None)

    def _rotate(self, now: float) -> None:
        healths = {name: self._health(name, now) for name in self.weights}
        self.rotation = select_rotation(self.weights, self.out, healths) if self.parts else ()
        for part in self.parts.values():
            part.kicked.set()

    def _health(self, name: str, now: float) -> VariantHealthSnapshot:
        health, part = self.record(name).health(now), self.parts.get(name)
        # pods from before this operator show too that they come up
        stand = part is not None and part.inventory.counts.warm + part.inventory.counts.busy > 0
        return replace(health, comes_up=health.comes_up or (stand and not health.failures))
