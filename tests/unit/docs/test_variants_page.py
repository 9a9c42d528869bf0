"""docs/platform/variants.md: its old manifest is refused, and its new ones are valid and mean what it says."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.meta import field_errors
from mcp_exec_api.rollout_status import ExecutionRolloutStatus, GuardMetric, RolloutPhase
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.rollouts.assignment import assign_arm
from mcp_exec_operator.pools.health import FAULTS

PAGE = (Path(__file__).parents[3] / "docs/platform/variants.md").read_text()
OLD, NEW = (list(yaml.safe_load_all(text)) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))


def rollout() -> tuple[ExecutionRolloutSpec, ExecutionRolloutStatus]:
    (spec,) = (each["spec"] for each in NEW if each["kind"] == "ExecutionRollout")
    return ExecutionRolloutSpec.model_validate(spec), ExecutionRolloutStatus(
        phase=RolloutPhase.PROGRESSING, stage="all"
    )


def test_the_old_manifest_is_refused_by_the_name_of_its_field() -> None:
    with pytest.raises(ValidationError) as refusal:
        SandboxPoolSpec.model_validate(OLD[0]["spec"])
    assert [each.field for each in field_errors(refusal.value, SandboxPoolSpec)] == ["variants"]


def test_the_new_pools_have_the_templates_of_the_old_variants() -> None:
    pools: dict[str, Any] = {each["metadata"]["name"]: each["spec"] for each in NEW if each["kind"] == "SandboxPool"}
    made = {name: SandboxPoolSpec.model_validate(spec) for name, spec in pools.items()}
    assert {arm.pool for arm in rollout()[0].arms} == made.keys()
    assert {each.image for each in made.values()} == {OLD[0]["spec"]["image"]}
    assert made["gvisor"].runtime_class_name == "gvisor"
    assert sum(each.warm.min for each in made.values()) == OLD[0]["spec"]["warm"]["min"]


def test_the_rollout_divides_units_as_the_weights_say_and_again_after_it_was_made_again() -> None:
    spec, status = rollout()
    units = [f"caller-{number}" for number in range(2000)]
    arms = [assign_arm(spec, status, uid="first", unit=unit).arm.name for unit in units]
    assert arms == [assign_arm(spec, status, uid="second", unit=unit).arm.name for unit in units]
    weights = {each["name"]: each["weight"] for each in OLD[0]["spec"]["variants"]}
    assert {name: round(arms.count(name) / 20) for name in weights} == pytest.approx(weights, abs=3)


def test_the_guards_are_those_that_the_page_explains() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Outliers")[2], re.MULTILINE)
    assert [guard.metric for guard in rollout()[0].guards] == [GuardMetric(each) for each in explained]


def test_the_page_lists_the_reasons_that_count_as_faults() -> None:
    (named,) = re.findall(r"that ended with (.*?)\.", PAGE)
    assert set(re.split(r", | or ", named)) == {str(reason) for reason in FAULTS}
