"""Assignment of units to the arms of a rollout, by salted hashes. Pure.

The assignment follows from the spec, the uid and the present stage alone, so every gateway computes the same one, and
no failover changes it. The stages up to the present one are read in their order, and the first that enrols the unit
decides its arm: a later stage enrols more units and changes the arm of none.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec, RolloutArm, RolloutStage
from mcp_exec_api.rollout_status import ExecutionRolloutStatus, RolloutPhase

_BITS: Final = 53
"""Bits of the digest that are used: a float represents them exactly."""
_STOPPED: Final = frozenset({RolloutPhase.PENDING, RolloutPhase.ROLLED_BACK, RolloutPhase.ABORTED})


@dataclass(frozen=True, kw_only=True)
class ArmAssignment:
    """Arm of a unit."""

    arm: RolloutArm
    stage: str | None
    """Stage that enrolled the unit; None if none did."""

    @property
    def is_enrolled(self) -> bool:
        """Whether the unit takes part, so that its outcomes count."""
        return self.stage is not None


def assign_arm(
    spec: ExecutionRolloutSpec, status: ExecutionRolloutStatus, *, uid: str, unit: str, user: str | None = None
) -> ArmAssignment:
    """Return the arm of a unit. It is the control arm if the unit is not enrolled or the rollout is stopped."""
    arms = {arm.name: arm for arm in spec.arms}
    control = ArmAssignment(arm=arms[spec.control], stage=None)
    present = spec.find_stage(status.stage)
    if spec.kill_switch or status.phase in _STOPPED or present is None:
        return control
    if status.phase is RolloutPhase.COMPLETED and spec.complete_with is not None:
        return ArmAssignment(arm=arms[spec.complete_with], stage=None)
    salt = spec.salt or uid
    enrolment = 100 * _score(salt, "enrolment", unit)
    for stage in spec.stages[: present + 1]:
        is_named = _names(stage, unit, user)
        if is_named and stage.arm is not None:
            return ArmAssignment(arm=arms[stage.arm], stage=stage.name)
        if is_named or enrolment < stage.percent:
            return ArmAssignment(arm=_choose(spec.arms, _score(salt, "arm", unit)), stage=stage.name)
    return control


def expect_shares(spec: ExecutionRolloutSpec, status: ExecutionRolloutStatus) -> dict[str, float]:
    """Return the expected share of all units that get each arm, from 0 to 1, without those that stages name."""
    shares = {arm.name: 0.0 for arm in spec.arms}
    present = spec.find_stage(status.stage)
    if spec.kill_switch or status.phase in _STOPPED or present is None:
        return shares | {spec.control: 1.0}
    if status.phase is RolloutPhase.COMPLETED and spec.complete_with is not None:
        return shares | {spec.complete_with: 1.0}
    enrolled = max(stage.percent for stage in spec.stages[: present + 1]) / 100
    total = sum(arm.weight for arm in spec.arms)
    shares = {arm.name: enrolled * arm.weight / total for arm in spec.arms}
    return shares | {spec.control: shares[spec.control] + 1 - enrolled}


def _names(stage: RolloutStage, unit: str, user: str | None) -> bool:
    return unit in stage.users or (user is not None and user in stage.users)


def _choose(arms: list[RolloutArm], score: float) -> RolloutArm:
    """Return the arm at a point, from 0 to 1, of the arms' weights laid end to end."""
    weighted = [arm for arm in arms if arm.weight > 0]
    point = score * sum(arm.weight for arm in weighted)
    for arm in weighted:
        if point < arm.weight:
            return arm
        point -= arm.weight
    return weighted[-1]


def _score(salt: str, purpose: str, unit: str) -> float:
    """Return a number from 0 to below 1. Scores of two purposes are independent."""
    # lengths keep apart what a separator within a text would confuse
    parts = (part.encode("utf-8", "surrogatepass") for part in (salt, purpose, unit))
    digest = hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()
    return float((int.from_bytes(digest[:8], "big") >> (64 - _BITS)) / 2**_BITS)
