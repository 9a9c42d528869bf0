"""Assignment of units to arms: uniform, sticky, and the same everywhere."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import ExecutionRolloutStatus, RolloutPhase
from mcp_exec_common.rollouts.assignment import ArmAssignment, assign_arm, expect_shares

UID = "0b9d6f0e-8a42-4c1e-9d0d-2f3f6a1c7e55"
STAGES = [
    {"name": "five", "users": [f"u-{number}" for number in range(5)], "arm": "code", "manual": True},
    {"name": "twenty", "users": [f"u-{number}" for number in range(25)], "durationSeconds": 60},
    {"name": "quarter", "percent": 25, "durationSeconds": 60},
    {"name": "all", "percent": 100, "durationSeconds": 60},
]
CHI_SQUARE_1 = 10.828
"""Quantile of the chi-square distribution for 1 degree of freedom at 99.9 %."""
CHI_SQUARE_99 = 148.23
"""The same for 99 degrees of freedom."""


def build(**changes: Any) -> ExecutionRolloutSpec:
    arms = [{"name": "direct", "mode": "direct"}, {"name": "code", "mode": "code", "pool": "large"}]
    return ExecutionRolloutSpec.model_validate({"arms": arms, "control": "direct", "stages": STAGES} | changes)


def at(stage: str | None, phase: RolloutPhase = RolloutPhase.PROGRESSING) -> ExecutionRolloutStatus:
    return ExecutionRolloutStatus(phase=phase, stage=stage)


def assign(unit: str, stage: str | None, *, user: str | None = None, **changes: Any) -> ArmAssignment:
    return assign_arm(build(**changes), at(stage), uid=UID, unit=unit, user=user)


def chi_square(found: list[int], expected: float) -> float:
    return sum((each - expected) ** 2 / expected for each in found)


def test_a_hundred_thousand_units_are_split_evenly() -> None:
    spec, status = build(), at("all")
    arms = Counter(assign_arm(spec, status, uid=UID, unit=f"id-{each}").arm.name for each in range(100_000))
    assert chi_square([arms["direct"], arms["code"]], 50_000) < CHI_SQUARE_1


def test_a_quarter_of_a_hundred_thousand_units_is_enrolled_and_split_evenly() -> None:
    spec, status = build(), at("quarter")
    found = [assign_arm(spec, status, uid=UID, unit=f"id-{each}") for each in range(100_000)]
    arms = Counter(each.arm.name for each in found if each.is_enrolled)
    enrolled = arms.total()
    assert (enrolled - 25_000) ** 2 / 25_000 + (enrolled - 25_000) ** 2 / 75_000 < CHI_SQUARE_1
    assert chi_square([arms["direct"], arms["code"]], enrolled / 2) < CHI_SQUARE_1


def test_every_percent_of_a_hundred_thousand_units_is_as_large_as_the_others() -> None:
    stages = [{"name": f"s{number}", "percent": 7 * number, "manual": True} for number in range(1, 15)]
    spec, status = build(stages=stages), at("s14")
    counts = Counter(assign_arm(spec, status, uid=UID, unit=f"id-{each}").stage for each in range(100_000))
    shares = [counts[stage["name"]] for stage in stages]
    assert chi_square(shares, 7_000) + (counts[None] - 2_000) ** 2 / 2_000 < CHI_SQUARE_99


@given(unit=st.text(min_size=1, max_size=40), user=st.none() | st.sampled_from(["u-1", "u-20", "somebody"]))
def test_a_later_stage_never_changes_the_arm_of_an_enrolled_unit(unit: str, user: str | None) -> None:
    spec = build()
    found = [assign_arm(spec, at(str(stage["name"])), uid=UID, unit=unit, user=user) for stage in STAGES]
    enrolled = [each for each in found if each.is_enrolled]
    assert found[len(found) - len(enrolled) :] == enrolled
    assert len({(each.arm.name, each.stage) for each in enrolled}) == 1


def test_named_users_come_first_and_get_the_arm_of_their_stage() -> None:
    assert {assign(f"u-{number}", "five").arm.name for number in range(5)} == {"code"}
    assert [assign(f"u-{number}", "five").is_enrolled for number in range(5, 25)] == [False] * 20
    assert {assign(f"u-{number}", "twenty").stage for number in range(5, 25)} == {"twenty"}
    assert {assign(f"u-{number}", "twenty").arm.name for number in range(5, 25)} == {"direct", "code"}
    assert {assign(f"u-{number}", "all").arm.name for number in range(5)} == {"code"}


def test_a_conversation_is_enrolled_by_its_user() -> None:
    found = assign("conversation-1", "five", user="u-1")
    assert (found.arm.name, found.arm.pool, found.stage) == ("code", "large", "five")


def test_nobody_is_enrolled_before_the_first_stage() -> None:
    assert assign("u-1", None).is_enrolled is False
    assert assign_arm(build(), at("all", RolloutPhase.PENDING), uid=UID, unit="u-1").arm.name == "direct"


@pytest.mark.parametrize("phase", [RolloutPhase.PAUSED, RolloutPhase.WARMING, RolloutPhase.COMPLETED])
def test_a_phase_that_stops_nothing_changes_no_arm(phase: RolloutPhase) -> None:
    spec = build()
    units = [f"id-{each}" for each in range(200)]
    before = [assign_arm(spec, at("quarter"), uid=UID, unit=unit) for unit in units]
    assert [assign_arm(spec, at("quarter", phase), uid=UID, unit=unit) for unit in units] == before


def test_a_complete_rollout_gives_every_unit_its_final_arm() -> None:
    spec, status = build(completeWith="code"), at("all", RolloutPhase.COMPLETED)
    assert {assign_arm(spec, status, uid=UID, unit=f"id-{each}").arm.name for each in range(100)} == {"code"}


def test_another_rollout_enrols_other_units_unless_the_salt_is_the_same() -> None:
    units = [f"id-{each}" for each in range(400)]
    status = at("quarter")

    def enrolled(uid: str, **changes: Any) -> list[bool]:
        return [assign_arm(build(**changes), status, uid=uid, unit=unit).is_enrolled for unit in units]

    assert enrolled(UID) != enrolled("another")
    assert enrolled(UID, salt="s") == enrolled("another", salt="s")


def test_an_arm_of_weight_zero_is_given_to_nobody() -> None:
    arms = [{"name": "direct", "mode": "direct", "weight": 0}, {"name": "code", "mode": "code"}]
    assert {assign(f"id-{each}", "all", arms=arms).arm.name for each in range(200)} == {"code"}


def test_arms_get_units_by_their_weights() -> None:
    arms = [{"name": "direct", "mode": "direct", "weight": 3}, {"name": "code", "mode": "code"}]
    spec, status = build(arms=arms), at("all")
    found = Counter(assign_arm(spec, status, uid=UID, unit=f"id-{each}").arm.name for each in range(20_000))
    assert (found["direct"] - 15_000) ** 2 / 15_000 + (found["code"] - 5_000) ** 2 / 5_000 < CHI_SQUARE_1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"control": "c"}, "control: there is no arm 'c'; arms: code, direct"),
        ({"completeWith": "c"}, "completeWith: there is no arm 'c'"),
        ({"promotedTo": "z"}, "promotedTo: there is no stage 'z'; stages: all, five, quarter, twenty"),
    ],
)
def test_names_that_lead_nowhere_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**changes)


@pytest.mark.parametrize("stage", [None, "five", "quarter", "all"])
@pytest.mark.parametrize("phase", RolloutPhase)
@pytest.mark.parametrize("changes", [{}, {"killSwitch": True}, {"completeWith": "code"}])
def test_the_expected_shares_are_those_of_ten_thousand_units(
    stage: str | None, phase: RolloutPhase, changes: dict[str, Any]
) -> None:
    spec, status = build(**changes), at(stage, phase)
    arms = Counter(assign_arm(spec, status, uid=UID, unit=f"id-{each}").arm.name for each in range(10_000))
    shares = expect_shares(spec, status)
    assert sum(shares.values()) == pytest.approx(1)
    assert all(abs(arms[arm] / 10_000 - share) < 0.02 for arm, share in shares.items())
