"""docs/reference/glossary.md has each resource and each state."""

import re
from enum import StrEnum
from pathlib import Path

import pytest
import yaml

from mcp_exec_api.approvals import ApprovalState
from mcp_exec_api.code_execution import Phase, Start
from mcp_exec_api.execution_rollout import ArmMode
from mcp_exec_api.rollout_status import RolloutPhase
from mcp_exec_api.sandbox_session import SessionPhase
from mcp_exec_api.skill import SkillState
from mcp_exec_operator.core.pods.pod import PodState

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/glossary.md").read_text()
FIRST_COLUMN = [line.split(" | ")[0].strip("| ") for line in PAGE.splitlines() if line.startswith("| ")]


def test_every_resource_is_in_the_glossary_with_its_short_name() -> None:
    for path in (ROOT / "crds").glob("*.yaml"):
        names = yaml.safe_load(path.read_text())["spec"]["names"]
        assert f"(`{names['kind']}`, `{names['shortNames'][0]}`)" in PAGE


@pytest.mark.parametrize("states", [Phase, Start, SessionPhase, SkillState, ApprovalState, RolloutPhase, PodState])
def test_every_state_is_in_the_glossary(states: type[StrEnum]) -> None:
    assert [state for state in states if f"`{state}`" not in " ".join(FIRST_COLUMN)] == []


def test_every_mode_of_an_agent_is_in_the_glossary() -> None:
    assert ", ".join(ArmMode) in FIRST_COLUMN


def test_no_name_stands_twice_in_the_glossary() -> None:
    names = [re.sub(r" \(.*", "", name) for name in FIRST_COLUMN if name != "name"]
    assert len(names) == len(set(names))
