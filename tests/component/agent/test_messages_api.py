"""The loopback server of the Messages API refuses what the real one documents, so that a violation fails a test."""

from collections.abc import Callable
from typing import Any

import pytest
from anthropic import Anthropic, BadRequestError
from tests.support.model_servers import messages_api
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.script import says, uses

Request = dict[str, Any]
TOOL = {"name": "add", "description": "Add.", "input_schema": {"type": "object"}}
Blocks = tuple[dict[str, Any], ...]
HIDDEN = {"type": "redacted_thinking", "data": ""}


def ask(messages: MessagesApi, request: Request) -> list[dict[str, Any]]:
    with Anthropic(api_key=messages_api.KEY, base_url=messages.url, max_retries=0) as sdk:
        answer = sdk.messages.create(model="claude-a", max_tokens=100, **request)
    return [block.to_dict() for block in answer.content]


def grow(messages: MessagesApi, *thoughts: dict[str, Any]) -> Request:
    """Return the second request of a conversation whose model has used a tool."""
    messages.rewrite([*thoughts, uses("add")], [says("3")])
    first = {"system": "Be brief.", "tools": [TOOL], "messages": [{"role": "user", "content": "1 + 2?"}]}
    answer = ask(messages, first)
    result = {"type": "tool_result", "tool_use_id": answer[1]["id"], "content": "3"}
    grown = [*first["messages"], {"role": "assistant", "content": answer}, {"role": "user", "content": [result]}]
    return {**first, "messages": grown}


def change_model(request: Request) -> None:
    request["extra_body"] = {"model": "claude-b"}


def change_prompt(request: Request) -> None:
    request["system"] = "Be wordy."


def add_tool(request: Request) -> None:
    request["tools"] = [TOOL, {**TOOL, "name": "subtract"}]


def change_task(request: Request) -> None:
    request["messages"][0] = {"role": "user", "content": "1 + 3?"}


def change_thought(request: Request) -> None:
    thought = request["messages"][1]["content"][0]
    thought.update({"thinking": "Otherwise."} if "thinking" in thought else {"data": "0"})


def drop_thought(request: Request) -> None:
    del request["messages"][1]["content"][0]


@pytest.mark.parametrize("thoughts", [(), (HIDDEN,)], ids=["shown", "redacted"])
def test_a_conversation_that_only_grows_is_answered(messages: MessagesApi, thoughts: Blocks) -> None:
    assert ask(messages, grow(messages, *thoughts))[-1]["text"] == "3"


@pytest.mark.parametrize("thoughts", [(), (HIDDEN,)], ids=["shown", "redacted"])
@pytest.mark.parametrize("change", [change_model, change_prompt, add_tool, change_task, change_thought, drop_thought])
def test_a_conversation_whose_beginning_has_changed_is_refused(
    messages: MessagesApi, change: Callable[[Request], None], thoughts: Blocks
) -> None:
    request = grow(messages, *thoughts)
    change(request)
    with pytest.raises(BadRequestError, match=r"signature|Expected `thinking`"):
        ask(messages, request)
