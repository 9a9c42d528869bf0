"""The scripted model: its rules, without a gateway."""

from typing import Any

import pytest

from mcp_exec_client.agent import ModelError, ModelRequest, OfflineProvider

SEARCH = {"name": "search_tools", "input_schema": {}}


def request(task: str, *used: tuple[str, str], tools: tuple[Any, ...] = (SEARCH,)) -> ModelRequest:
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    for place, (name, result) in enumerate(used):
        use = {"type": "tool_use", "id": str(place), "name": name, "input": {}}
        messages.append({"role": "assistant", "content": [use]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": str(place), "content": result}]}
        )
    return ModelRequest(system="", messages=messages, tools=tools)


async def test_a_script_ends() -> None:
    async def ignore(text: str) -> None:
        """Drop the text."""

    provider = OfflineProvider(["hello"])
    assert (await provider.reply(request("x"), on_text=ignore)).text == "hello"
    with pytest.raises(ModelError, match="no further answer"):
        await provider.reply(request("x"), on_text=ignore)
    assert (await provider.count_tokens(request("some words"))).counted == "estimate"
