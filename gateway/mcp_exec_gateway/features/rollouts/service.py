"""Rollouts: which arm a unit gets, how far a rollout is, and what approvers do with it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pydantic import ValidationError

from mcp_exec_api.constants import GROUP, ROLLOUTS
from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.meta import explain_errors
from mcp_exec_api.rollout_status import ExecutionRolloutStatus, RolloutPhase
from mcp_exec_api.wire.rollouts import Assignment, StageSummary
from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector, object_key
from mcp_exec_common.rollouts.assignment import ArmAssignment, assign_arm
from mcp_exec_common.rollouts.progress import NoLaterStage, choose_promotion
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field, translate_refusal, unavailable
from mcp_exec_gateway.features.records.service import ReportedArm
from mcp_exec_gateway.features.rollouts.exposures import ExposureLog

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
    """Only phase and stage, which an assignment needs. A newer operator may write more than this gateway reads."""
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
            problem = explain_errors(error, ExecutionRolloutSpec)
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


_MAX_ATTEMPTS: Final = 8


@dataclass(frozen=True, kw_only=True)
class RolloutSteering:
    """Changes of rollouts. The operator follows them; an abort holds at once at the gateway that wrote it."""

    kube: KubeClient
    cache: RolloutCache

    async def promote(self, name: str, to: str | None, *, caller: Caller) -> CachedRollout:
        """Request that a stage begins, by default the next one. Raises HttpProblem."""
        return await self._change(name, lambda rollout: {"promotedTo": _choose_stage(rollout, to)}, caller=caller)

    async def set_paused(self, name: str, paused: bool, *, caller: Caller) -> CachedRollout:
        """Pause a rollout or resume it. Raises HttpProblem."""
        return await self._change(name, lambda _: {"paused": paused}, caller=caller)

    async def abort(self, name: str, *, caller: Caller) -> CachedRollout:
        """Give every unit the control arm, for good. Raises HttpProblem."""
        return await self._change(name, lambda _: {"killSwitch": True}, caller=caller)

    async def _change(self, name: str, build: Callable[[CachedRollout], Object], *, caller: Caller) -> CachedRollout:
        """Change the spec of a rollout that has not ended, as it is now."""
        self.cache.get(caller.namespace, name)
        path = custom_resource_path(ROLLOUTS, namespace=caller.namespace, name=name)
        for _ in range(_MAX_ATTEMPTS):
            try:
                stored = await self.kube.get(path)
                rollout = CachedRollout.from_object(stored)
                _check_not_ended(rollout)
                # with the version that was read, the second of two concurrent changes gets a 409 and reads again
                version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
                changed = await self.kube.patch(path, {"metadata": version, "spec": build(rollout)})
            except ApiError as error:
                if error.code == 409:
                    continue
                if error.code == 404:
                    detail = f"there is no rollout {name[:253]} in namespace {caller.namespace}"
                    raise HttpProblem("not-found", 404, detail) from error
                raise translate_refusal(error, kind="ExecutionRollout", namespace=caller.namespace) from error
            self.cache.on_change(changed, False)  # before the watch brings it: the next assignment counts on it
            return CachedRollout.from_object(changed)
        raise unavailable(f"rollout {name} changed during each of {_MAX_ATTEMPTS} attempts")


def _check_not_ended(rollout: CachedRollout) -> None:
    """Raise HttpProblem, a 409, if the rollout has ended."""
    if rollout.position.phase.is_final:
        detail = f"rollout {rollout.name} has ended: it is {rollout.position.phase}; create another one"
        raise HttpProblem("conflict", 409, detail)


def _choose_stage(rollout: CachedRollout, to: str | None) -> str:
    """Return the stage to promote to. Raises HttpProblem: a 422 if it is not a later one, a 409 without a spec."""
    try:
        return choose_promotion(rollout.require_spec(), rollout.position.stage, to)
    except NoLaterStage as error:
        raise invalid_field("to", str(error)) from error


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """Rollouts, their exposures and their outcomes."""

    cache: RolloutCache
    steering: RolloutSteering
    exposures: ExposureLog
    records: RecordsClient | None
    """None if no broker is configured."""

    def find_arm(self, namespace: str, rollout: str, *, unit: str, user: str | None) -> ReportedArm | None:
        """Return the arm that a report is about, or None if its unit is not enrolled. Raises HttpProblem: 404, 409."""
        found = self.cache.get(namespace, rollout)
        assigned = found.assign(unit, user)
        return ReportedArm(rollout=found.name, uid=found.uid, arm=assigned.arm.name) if assigned.is_enrolled else None


_FROM_STATUS: Final = ("stage", "since", "endedAt", "message", "exposure", "guards", "conditions")


def build_assignment_view(rollout: CachedRollout, unit: str, found: ArmAssignment) -> dict[str, Any]:
    """Return an assignment as a response shows it."""
    return Assignment(
        rollout=rollout.name,
        unit=unit,
        arm=found.arm.name,
        mode=found.arm.mode,
        pool=found.arm.pool,
        enrolled=found.is_enrolled,
        stage=found.stage,
        phase=rollout.position.phase,
    ).to_api()


def build_rollout_view(rollout: CachedRollout) -> dict[str, Any]:
    """Return a rollout as a response shows it."""
    status = rollout.status
    optional = {name: status.get(name) for name in _FROM_STATUS}
    optional |= {"measures": status.get("arms"), "problem": rollout.problem}
    return {
        "name": rollout.name,
        "namespace": rollout.namespace,
        "phase": str(rollout.position.phase),
        **({} if rollout.spec is None else _build_spec_view(rollout)),
        **{name: value for name, value in optional.items() if value not in (None, "", [])},
    }


def _build_spec_view(rollout: CachedRollout) -> dict[str, Any]:
    spec = rollout.require_spec()
    stages = [
        StageSummary(
            name=stage.name,
            users=len(stage.users),
            percent=stage.percent,
            arm=stage.arm,
            duration_seconds=stage.duration_seconds,
            manual=stage.manual,
        )
        for stage in spec.stages
    ]
    return {
        "control": spec.control,
        "paused": spec.paused,
        "killSwitch": spec.kill_switch,
        "arms": [arm.to_api() for arm in spec.arms],
        "stages": [stage.to_api() for stage in stages],
    }
