"""What a SandboxPool's object says, and what all of its pods have in common. Pure."""

from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from mcp_exec_api.constants import DEFAULT_LANGUAGE, Language
from mcp_exec_api.meta import explain_errors
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import Reuse, ReuseScope, SandboxPoolSpec
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.pods.manifest import pool_labels, template_hash
from mcp_exec_operator.core.pods.status import PodProblem
from mcp_exec_operator.core.pods.template import select_labels


@dataclass(frozen=True, kw_only=True)
class PoolShape:
    """A pool's newest object. It is replaced as a whole when the object is observed."""

    body: Object | None = None
    """The object as last observed, or None if the pool does not exist."""
    appeared_at: float = 0.0
    """When the object was first observed, by the monotonic clock."""
    uid: str = ""
    generation: int = 0
    spec: SandboxPoolSpec | None = None
    """None if the pool does not exist or its spec is invalid."""
    language: Language = DEFAULT_LANGUAGE
    """Language of the code that the pods run, by the last valid spec."""
    reuse: Reuse | None = None
    """Limits of its pods' further uses; None if they serve one execution each."""
    invalid: PodProblem | None = None
    """What is wrong with the spec."""
    template_hash: str = ""
    """Hash of the pods that the last valid spec asks for. Pods with another one are outdated."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of the pods, without those that change; empty if the spec is invalid."""

    def observe(self, body: Object, *, pool: str, prefixes: tuple[str, ...], now: float) -> "PoolShape":
        """Return the shape after an object of the pool with this name. An older object changes nothing.

        `prefixes` are those that labels and annotations of templates may have.
        """
        meta = body["metadata"]
        uid, generation = str(meta["uid"]), int(meta.get("generation", 0))
        is_same = self.body is not None and uid == self.uid
        if is_same and generation < self.generation:
            return self  # from a list that was requested before the last change
        if is_same and generation == self.generation:
            return replace(self, body=body)
        shape = PoolShape(
            body=body,
            appeared_at=self.appeared_at if is_same else now,
            uid=uid,
            generation=generation,
            language=self.language,
            template_hash=self.template_hash,
        )
        return shape._read_spec(body.get("spec") or {}, pool=pool, prefixes=prefixes)

    def is_revised(self, former: "PoolShape") -> bool:
        """Return whether this is another spec than the former one, or that of another pool."""
        return former.body is None or (self.uid, self.generation) != (former.uid, former.generation)

    def remove(self) -> "PoolShape":
        """Return the shape after the deletion of the object."""
        return replace(self, body=None, spec=None, reuse=None)

    def _read_spec(self, given: Object, *, pool: str, prefixes: tuple[str, ...]) -> "PoolShape":
        try:
            spec = SandboxPoolSpec.model_validate(given)
            labels = select_labels(spec.template.to_api(), prefixes=prefixes) | pool_labels(pool)
            digest = template_hash(spec, template_prefixes=prefixes)
        except ValidationError as error:
            message = f"the pool's spec is invalid: {explain_errors(error, SandboxPoolSpec)}"
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            message = f"the pool's template is invalid: {error}"
        else:
            reuse = spec.reuse if spec.reuse.scope is ReuseScope.OWNER else None
            return replace(self, spec=spec, language=spec.language, reuse=reuse, labels=labels, template_hash=digest)
        return replace(self, invalid=PodProblem(reason=Reason.POOL_UNAVAILABLE, message=message))
