"""The scripted model: its rules, without a gateway."""

import json
from typing import Any

import pytest

from mcp_exec_client.agent import ModelError, ModelRequest, OfflineProvider
from mcp_exec_client.agent.providers.offline import plan_turn

SEARCH = {"name": "search_tools", "input_schema": {}}
LIST = {"name": "list_issues", "server": "github", "input_schema": {"properties": {"n": {"type": "integer"}}}}
ADD = {
    "name": "math__add",
    "description": "add numbers",
    "input_schema": {"properties": {"a": {"type": "integer"}, "name": {"type": "string"}}, "required": ["a"]},
}


def request(task: str, *used: tuple[str, str], tools: tuple[Any, ...] = (SEARCH,)) -> ModelRequest:
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    for place, (name, result) in enumerate(used):
        use = {"type": "tool_use", "id": str(place), "name": name, "input": {}}
        messages.append({"role": "assistant", "content": [use]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": str(place), "content": result}]}
        )
    return ModelRequest(system="", messages=messages, tools=tools)


def test_it_searches_calls_by_code_and_reports() -> None:
    (search,) = plan_turn(request("list issues n=5"))
    assert search["input"]["query"] == "list issues"  # type: ignore[index]
    found = json.dumps([{**LIST, "name": "none"}, LIST])
    (code,) = plan_turn(request("list issues n=5", ("search_tools", found)))
    assert code["input"]["context"] == {"tool": "github.none", "arguments": {"n": 5}}  # type: ignore[index]
    done = json.dumps({"phase": "Succeeded", "stdout": "5 issues\n"})
    answer = plan_turn(request("list issues", ("search_tools", found), ("execute_code", done)))
    assert str(answer).endswith("The result: 5 issues")


@pytest.mark.parametrize("found", ["[]", "not json", json.dumps([{**LIST, "input_schema": {"required": ["x"]}}])])
def test_without_a_tool_that_fits_it_counts_words(found: str) -> None:
    (code,) = plan_turn(request("three short words", ("search_tools", found)))
    assert code["input"]["context"] == {"task": "three short words"}  # type: ignore[index]


def test_it_calls_the_best_tool_directly_with_typed_arguments() -> None:
    (call,) = plan_turn(request('add a=1 name="two words"', tools=(ADD,)))
    assert (call["name"], call["input"]) == ("math__add", {"a": 1, "name": "two words"})  # type: ignore[index]
    assert str(plan_turn(request("add without a number", tools=(ADD,)))).endswith("found none.")


async def test_a_script_ends() -> None:
    async def ignore(text: str) -> None:
        """Drop the text."""

    provider = OfflineProvider(["hello"])
    assert (await provider.reply(request("x"), on_text=ignore)).text == "hello"
    with pytest.raises(ModelError, match="no further answer"):
        await provider.reply(request("x"), on_text=ignore)
    assert (await provider.count_tokens(request("some words"))).counted == "estimate"
