"""Limits of direct calls in a hybrid task."""

from typing import cast

import pytest

from mcp_exec_client.agent import HybridRules, TaskProfile
from mcp_exec_client.agent.direct_mode import DirectMode
from mcp_exec_client.agent.outcomes import OnEvent, RunEvent, ToolOutcome
from mcp_exec_client.agent.task_tools import TaskTools


class OneAnswer:
    """Direct mode whose calls return one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def work(self, name: str, given: object, *, on_event: OnEvent) -> ToolOutcome:
        return ToolOutcome(text=self.text)


async def call(text: str, rules: HybridRules) -> tuple[str, list[str]]:
    """Return the result of a call as the model receives it, and the steps."""
    steps: list[str] = []

    async def collect(event: RunEvent) -> None:
        steps.append(getattr(event, "text", ""))

    direct = cast("DirectMode", OneAnswer(text))
    tools = TaskTools(code=None, direct=direct, definitions=[{"name": "files__read"}], rules=rules)
    block = await tools.work({"id": "1", "name": "files__read", "input": {}}, on_event=collect)
    return str(block["content"]), steps


async def test_a_long_document_of_one_row_is_cut_with_the_advice_to_use_code() -> None:
    content, steps = await call("word " * 3000, HybridRules(max_result_tokens=500))
    assert "the result has about" in content
    assert "more than 500: call the tool by code with execute_code" in content
    assert len(content) < 2500
    assert steps[-1].startswith("code (max_result_tokens): ")


async def test_a_result_within_the_limits_is_returned_whole() -> None:
    assert await call("word " * 300, HybridRules(max_result_tokens=500)) == ("word " * 300, [])


@pytest.mark.parametrize(
    ("task", "reducing"),
    [
        ("What does the status 409 mean?", False),
        ("What is the mean of the amounts?", True),
        ("Which country has the mean value of 5?", True),
    ],
)
def test_the_verb_mean_is_no_sign_of_much_data(task: str, reducing: bool) -> None:
    assert TaskProfile.estimate(task, []).reducing is reducing
