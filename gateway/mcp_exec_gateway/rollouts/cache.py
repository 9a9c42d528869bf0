"""Cache of the served namespaces' rollouts, kept current by watches."""

import logging
from dataclasses import dataclass, field
from typing import Final, Self

from pydantic import ValidationError

from mcp_exec_api.constants import GROUP, ROLLOUTS
from mcp_exec_api.meta import field_errors
from mcp_exec_api.rollouts.rollout import ExecutionRolloutSpec
from mcp_exec_api.rollouts.status import ExecutionRolloutStatus, RolloutPhase
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector, object_key
from mcp_exec_common.rollouts.assignment import ArmAssignment, assign_arm
from mcp_exec_gateway.http.problems import HttpProblem, unavailable

log = logging.getLogger(__name__)

_KEPT_METADATA: Final = ("namespace", "name", "uid", "resourceVersion")
_PHASES: Final = {str(phase): phase for phase in RolloutPhase}


@dataclass(frozen=True, kw_only=True)
class CachedRollout:
    """A rollout as the gateway uses it."""

    namespace: str
    name: str
    uid: str
    spec: ExecutionRolloutSpec | None
    """None if the spec contradicts itself, which API servers without CEL accept."""
    problem: str
    """What is wrong with the spec; empty if nothing is."""
    position: ExecutionRolloutStatus
    """Phase and stage alone: what an assignment needs, also if a newer operator writes more than this gateway reads."""
    status: Object
    """The status as the operator wrote it."""

    @classmethod
    def from_object(cls, rollout: Object) -> Self:
        """Read a rollout. An unknown phase counts as Pending: every unit gets the control arm."""
        metadata, status = rollout["metadata"], rollout.get("status") or {}
        spec, problem = None, ""
        try:
            spec = ExecutionRolloutSpec.model_validate(rollout.get("spec") or {})
        except ValidationError as error:
            problem = "; ".join(f"{each.field}: {each.message}" for each in field_errors(error, ExecutionRolloutSpec))
        stage = status.get("stage")
        phase = _PHASES.get(str(status.get("phase")), RolloutPhase.PENDING)
        return cls(
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            spec=spec,
            problem=problem,
            position=ExecutionRolloutStatus(phase=phase, stage=stage if isinstance(stage, str) else None),
            status=status,
        )

    def require_spec(self) -> ExecutionRolloutSpec:
        """Return the spec. Raises HttpProblem, a 409, if it contradicts itself."""
        if self.spec is None:
            raise HttpProblem("conflict", 409, f"rollout {self.name} cannot be used: {self.problem}")
        return self.spec

    def assign(self, unit: str, user: str | None) -> ArmAssignment:
        """Return the arm of a unit. Raises HttpProblem, a 409, if the spec contradicts itself."""
        return assign_arm(self.require_spec(), self.position, uid=self.uid, unit=unit, user=user)


@dataclass(kw_only=True)
class RolloutCache:
    """Rollouts by namespace and name. The reflectors call `on_change`."""

    _rollouts: dict[ObjectKey, CachedRollout] = field(default_factory=dict, init=False)
    _reflectors: dict[str, Reflector] = field(default_factory=dict, init=False)
    """By namespace."""

    def build_reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """Build the reflector of one namespace's rollouts."""
        path = custom_resource_path(ROLLOUTS, namespace=namespace)
        self._reflectors[namespace] = reflector = Reflector(
            kube=kube,
            path=path,
            on_change=self.on_change,
            transform=lambda rollout: {"metadata": {name: rollout["metadata"].get(name) for name in _KEPT_METADATA}},
            required=False,
        )
        return reflector

    def on_change(self, rollout: Object, deleted: bool) -> None:
        """Observe one change."""
        key = object_key(rollout)
        if deleted:
            self._rollouts.pop(key, None)
            return
        cached = CachedRollout.from_object(rollout)
        if cached.problem:
            log.warning("rollout %s in %s is not used: %s", cached.name, cached.namespace, cached.problem)
        self._rollouts[key] = cached

    def list_all(self, namespace: str) -> list[CachedRollout]:
        """Return the rollouts of a namespace, ordered by name. Raises HttpProblem, a 503, if none were ever listed."""
        self._check_synced(namespace)
        found = (rollout for (space, _), rollout in self._rollouts.items() if space == namespace)
        return sorted(found, key=lambda rollout: rollout.name)

    def get(self, namespace: str, name: str) -> CachedRollout:
        """Return a rollout. Raises HttpProblem: 404 if there is none of this name, 503 if none were ever listed."""
        self._check_synced(namespace)
        found = self._rollouts.get((namespace, name))
        if found is None:
            raise HttpProblem("not-found", 404, f"there is no rollout {name[:253]} in namespace {namespace}")
        return found

    def _check_synced(self, namespace: str) -> None:
        """Raise HttpProblem, a 503, before the first list, which a cluster without the definition never answers."""
        reflector = self._reflectors.get(namespace)
        if reflector is not None and not reflector.synced.is_set():
            detail = (
                f"rollouts in namespace {namespace} were not listed yet; if this lasts, the cluster lacks the "
                f"definition {ROLLOUTS}.{GROUP}, or the gateway may not list it: the chart installs both"
            )
            raise unavailable(detail, retry_after=5)
