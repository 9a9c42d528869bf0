"""docs/platform/variants.md: its manifests are valid and mean what it says."""

import re
from pathlib import Path

import pytest
import yaml

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import ExecutionRolloutStatus, GuardMetric, RolloutPhase
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.rollouts.assignment import assign_arm
from mcp_exec_operator.core.pools.health import FAULTS

PAGE = (Path(__file__).parents[3] / "docs/platform/variants.md").read_text()
(ITEMS,) = (list(yaml.safe_load_all(text)) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))


def rollout() -> tuple[ExecutionRolloutSpec, ExecutionRolloutStatus]:
    (spec,) = (each["spec"] for each in ITEMS if each["kind"] == "ExecutionRollout")
    return ExecutionRolloutSpec.model_validate(spec), ExecutionRolloutStatus(
        phase=RolloutPhase.PROGRESSING, stage="all"
    )


def test_each_arm_has_a_pool_and_they_differ_in_their_runtime() -> None:
    pools = {each["metadata"]["name"]: each["spec"] for each in ITEMS if each["kind"] == "SandboxPool"}
    made = {name: SandboxPoolSpec.model_validate(spec) for name, spec in pools.items()}
    assert {arm.pool for arm in rollout()[0].arms} == made.keys()
    assert {each.runtime_class_name for each in made.values()} == {None, "gvisor"}


def test_the_rollout_divides_units_as_the_weights_say_and_again_after_it_was_made_again() -> None:
    spec, status = rollout()
    units = [f"caller-{number}" for number in range(2000)]
    arms = [assign_arm(spec, status, uid="first", unit=unit).arm.name for unit in units]
    assert arms == [assign_arm(spec, status, uid="second", unit=unit).arm.name for unit in units]
    weights = {arm.name: arm.weight for arm in spec.arms}
    assert {name: round(arms.count(name) / 20) for name in weights} == pytest.approx(weights, abs=3)


def test_the_guards_are_those_that_the_page_explains() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Outliers")[2], re.MULTILINE)
    assert [guard.metric for guard in rollout()[0].guards] == [GuardMetric(each) for each in explained]


def test_the_page_lists_the_reasons_that_count_as_faults() -> None:
    (named,) = re.findall(r"that ended with (.*?)\.", PAGE)
    assert set(re.split(r", | or ", named)) == {str(reason) for reason in FAULTS}
