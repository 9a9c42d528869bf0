"""What an agent makes of servers and proxies that answer otherwise than a model's API does."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.component.agent.conftest import MakeAgent
from tests.support.agent_gateway import AgentGateway, Run
from tests.support.model_servers.script import Turn, says, uses
from tests.support.model_servers.server import ModelServer

from mcp_exec_client.agent import FallbackProvider, ModelError, OfflineProvider, TextDelta, TextDropped

PAGE = "<!doctype html><html><head><title>Log in</title></head><body>Who are you?</body></html>"

HOLLOW = {"choices": [{"message": None, "finish_reason": None}], "output": [None], "type": "message", "content": "a"}


@pytest.fixture
def whole(model: ModelServer) -> Iterator[ModelServer]:
    """A server that ignores `stream: true`."""
    model.streams = False
    yield model
    model.streams = True


async def test_an_answer_that_comes_as_one_document_is_used(
    whole: ModelServer, make_agent: MakeAgent, gateway: AgentGateway
) -> None:
    gateway.runs = [Run(stdout="42")]
    whole.rewrite([says("I compute it."), uses("execute_code", code="print(42)")], [says("It is 42.")])
    events = [event async for event in make_agent().stream("task")]
    assert str(events[-1]) == "It is 42."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "I compute it.It is 42."
    assert [each["code"] for each in gateway.executions] == ["print(42)"]
    assert not any(isinstance(event, TextDropped) for event in events)
    assert whole.attempts == 2


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (PAGE, "text/html"),
        ({"status": "ok"}, "application/json"),
        ([1], "application/json"),
        (HOLLOW, "application/json"),
    ],
)
async def test_what_is_no_answer_ends_the_task_at_once_with_the_address(
    model: ModelServer, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch, body: Any, kind: str
) -> None:
    monkeypatch.setattr(model, "reject", lambda path, request: (200, body))
    with pytest.raises(ModelError) as caught:
        await make_agent().run("task")
    said = rf"the model's API at {model.url}\S* answered with {kind} instead of an event stream: check \$\w+_BASE_URL"
    assert re.match(said, str(caught.value))
    assert len(model.paths) == 1


async def test_an_error_with_status_200_is_an_error(
    model: ModelServer, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "reject", lambda path, request: (200, {"error": {"message": "no such tenant"}}))
    with pytest.raises(ModelError, match="no such tenant"):
        await make_agent().run("task")
    assert len(model.paths) == 1


@pytest.mark.parametrize("cut", ["reset", "clean"])
async def test_an_answer_that_is_cut_off_for_good_names_address_and_way_out(
    model: ModelServer, make_agent: MakeAgent, cut: Any
) -> None:
    model.rewrite(*[Turn(blocks=[says("The answer is")], cut=cut)] * 3)
    with pytest.raises(ModelError) as caught:
        await make_agent().run("task")
    assert f"the answer of the model's API at {model.url}" in str(caught.value)
    assert "was cut off: " in str(caught.value)
    assert "Connection error" not in str(caught.value)
    assert "after 3 attempts; check the network and its proxy" in str(caught.value)
    assert "--fallback PROVIDER:MODEL" in str(caught.value)


async def test_a_model_whose_answers_stay_cut_off_is_followed_by_the_next_one(
    model: ModelServer, make_agent: MakeAgent
) -> None:
    model.rewrite(*[Turn(blocks=[says("The answer is")], cut="reset")] * 3)
    failing = make_agent()._provider  # noqa: SLF001 - the model of the fixture
    provider = FallbackProvider([failing, OfflineProvider(["It is 42."], model="second")])
    agent = make_agent(provider=provider)
    assert (await agent.run("task")).text == "It is 42."
    assert agent.trace is not None
    assert "second answers" in str(agent.trace.steps)
    assert model.attempts == 2
