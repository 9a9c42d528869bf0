"""ExecutionRollout: a staged change between arms, which are modes or pools."""

from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from mcp_exec_api.meta import Model, OpenEnum
from mcp_exec_api.rollout_status import RolloutGuard, RolloutLabel

MAX_ARMS: Final = 8
MAX_STAGES: Final = 16
MAX_STAGE_USERS: Final = 100
MAX_GUARDS: Final = 16
MAX_STAGE_SECONDS: Final = 90 * 24 * 3600
MAX_UNIT_CHARACTERS: Final = 253
COMPLETED: Final = "Completed"
"""Value of `spec.promotedTo` that ends the last stage. No stage has this name: stages are lower-case."""
_PRINTABLE: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
_IMMUTABLE: Final = ("arms", "control", "stages", "salt")

RolloutUnit = Annotated[str, Field(min_length=1, max_length=MAX_UNIT_CHARACTERS, pattern=_PRINTABLE)]
"""What gets an arm and keeps it: a user, a conversation, a tenant."""


class ArmMode(OpenEnum):
    """An agent's use of tools in an arm."""

    DIRECT = "direct"
    CODE = "code"
    HYBRID = "hybrid"


class RolloutArm(Model):
    """One alternative of the rollout."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": "has(self.mode) || has(self.pool)", "message": "an arm needs a mode, a pool or both"}
            ]
        }
    )

    name: RolloutLabel
    """Name of the arm, unique in the rollout."""
    mode: ArmMode | None = None
    """direct: the model calls tools. code: the model writes code that calls tools. hybrid: the agent decides."""
    pool: RolloutLabel | None = None
    """Pool whose sandboxes run the arm's executions. Its warm pods are raised before a stage begins."""
    weight: Annotated[int, Field(ge=0, le=1000)] = 1
    """Share of the enrolled units that get the arm, relative to the other arms."""


class RolloutStage(Model):
    """One step of the rollout: who is enrolled, and for how long."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.percent > 0 || (has(self.users) && self.users.size() > 0)",
                    "message": "a stage needs users or a percent above 0",
                },
                {
                    "rule": "has(self.durationSeconds) != self.manual",
                    "message": "exactly one of durationSeconds and manual: true is needed",
                },
            ]
        }
    )

    name: RolloutLabel
    """Name of the stage, unique in the rollout."""
    users: Annotated[list[RolloutUnit], Field(max_length=MAX_STAGE_USERS)] = Field(default_factory=list)
    """Users, or other units, that are enrolled by name."""
    arm: RolloutLabel | None = None
    """Arm of the named users. By default they get one by the arms' weights."""
    percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Share of all units that are enrolled. Units of earlier stages stay enrolled, with the same arm."""
    duration_seconds: Annotated[int | None, Field(ge=1, le=MAX_STAGE_SECONDS)] = None
    """Seconds until the next stage begins, if the guards allow it."""
    manual: bool = False
    """Stay in the stage until somebody promotes the rollout by `spec.promotedTo`."""
    warm_pods: Annotated[int, Field(ge=0, le=1000)] = 0
    """Warm pods that each pool of the arms has before the stage begins. 0 leaves the pools as they are."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not (self.percent or self.users):
            raise ValueError("a stage needs users or a percent above 0")
        if (self.duration_seconds is not None) == self.manual:
            raise ValueError("exactly one of durationSeconds and manual: true is needed")
        return self


def _unique(path: str) -> JsonValue:
    return {
        "rule": "self.all(one, self.exists_one(other, other.name == one.name))",
        "message": f"spec.{path} must have different names",
    }


def _named(field: str) -> JsonValue:
    return {
        "rule": f"!has(self.{field}) || self.arms.exists(arm, arm.name == self.{field})",
        "message": f"spec.{field} must be the name of one of spec.arms",
    }


def _build_rules() -> list[JsonValue]:
    rules: list[JsonValue] = []
    for name in _IMMUTABLE:
        same = f"self.{name} == oldSelf.{name}"
        if name == "salt":
            same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
        rules.append({"rule": same, "message": f"spec.{name} of a rollout is immutable: create another rollout"})
    return [
        *rules,
        {
            "rule": "!oldSelf.killSwitch || self.killSwitch",
            "message": "spec.killSwitch cannot be set back to false: create another rollout",
        },
        _named("control"),
        _named("completeWith"),
        {
            "rule": "self.stages.all(stage, !has(stage.arm) || self.arms.exists(arm, arm.name == stage.arm))",
            "message": "the arm of each of spec.stages must be the name of one of spec.arms",
        },
        {
            "rule": f"!has(self.promotedTo) || self.promotedTo == '{COMPLETED}' || "
            "self.stages.exists(stage, stage.name == self.promotedTo)",
            "message": f"spec.promotedTo must be {COMPLETED} or the name of one of spec.stages",
        },
    ]


_ARM_RULES: Final[list[JsonValue]] = [
    _unique("arms"),
    {"rule": "self.exists(arm, arm.weight > 0)", "message": "one of spec.arms must have a weight above 0"},
]


class ExecutionRolloutSpec(Model):
    """A rollout. Arms, control arm, stages and salt cannot change, so that no unit changes its arm."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": _build_rules()})

    arms: Annotated[
        list[RolloutArm],
        Field(min_length=2, max_length=MAX_ARMS, json_schema_extra={"x-kubernetes-validations": _ARM_RULES}),
    ]
    """Alternatives."""
    control: RolloutLabel
    """Arm of all units that are not enrolled, and of every unit after a rollback or an abort."""
    stages: Annotated[
        list[RolloutStage],
        Field(min_length=1, max_length=MAX_STAGES, json_schema_extra={"x-kubernetes-validations": [_unique("stages")]}),
    ]
    """Steps, in their order."""
    guards: Annotated[
        list[RolloutGuard],
        Field(max_length=MAX_GUARDS, json_schema_extra={"x-kubernetes-validations": [_unique("guards")]}),
    ] = Field(default_factory=list)
    """Limits that stop the rollout."""
    complete_with: RolloutLabel | None = None
    """Arm that every unit gets when the rollout is complete. By default units keep the arms of the last stage."""
    paused: bool = False
    """Stay in the present stage. Assignments continue, and guards still roll back."""
    kill_switch: bool = False
    """Give every unit the control arm at once, for good. The gateway applies it also if no operator runs."""
    promoted_to: Annotated[
        str | None, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ] = None
    """Stage to begin although the present one is not over, or `Completed` to end the last one. Ignored if the rollout
    is already there or beyond. Example: `kubectl patch xro NAME --type merge -p '{"spec": {"promotedTo": "all"}}'`."""
    salt: Annotated[str | None, Field(min_length=1, max_length=64, pattern=_PRINTABLE)] = None
    """Text that the hash of each unit includes; two rollouts with the same salt enrol the same units. By default the
    uid of the rollout."""

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        arms = {arm.name for arm in self.arms}
        stages = {stage.name for stage in self.stages}
        named = {"control": self.control, "completeWith": self.complete_with}
        named |= {f"stages.{stage.name}.arm": stage.arm for stage in self.stages}
        for field, name in named.items():
            if name is not None and name not in arms:
                raise ValueError(f"{field}: there is no arm {name!r}; arms: {', '.join(sorted(arms))}")
        if self.promoted_to is not None and self.promoted_to not in {COMPLETED, *stages}:
            raise ValueError(f"promotedTo: there is no stage {self.promoted_to!r}; stages: {', '.join(sorted(stages))}")
        for field, parts in (("arms", self.arms), ("stages", self.stages), ("guards", self.guards)):
            if len({part.name for part in parts}) != len(parts):
                raise ValueError(f"{field}: they must have different names")
        if not any(arm.weight for arm in self.arms):
            raise ValueError("arms: all weights are 0; at least one must be above 0")
        return self

    def find_stage(self, name: str | None) -> int | None:
        """Return the index of a stage; None if there is none of that name."""
        return next((index for index, stage in enumerate(self.stages) if stage.name == name), None)


SELECTABLE_FIELDS: Final = (".status.phase", ".status.stage")
PRINTER_COLUMNS: list[dict[str, Any]] = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Stage", "type": "string", "jsonPath": ".status.stage"},
    {"name": "Arms", "type": "string", "jsonPath": ".status.armNames"},
    {"name": "Exposure", "type": "string", "jsonPath": ".status.exposure"},
    {"name": "Guard", "type": "string", "jsonPath": ".status.guard"},
    {"name": "Control", "type": "string", "jsonPath": ".spec.control", "priority": 1},
    {"name": "Since", "type": "date", "jsonPath": ".status.since", "priority": 1},
    {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
