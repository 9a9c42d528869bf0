"""Modes of an agent: direct calls, hybrid rules, the kill switch, rollouts and reports."""

import json
from typing import Any

import pytest
from tests.component.agent.conftest import MakeAgent
from tests.support.agent_gateway import AgentGateway, Run, tool
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.script import results_in, says, uses
from tests.support.model_servers.server import ModelServer
from tests.support.scripted_gateway import problem

from mcp_exec_client.agent import AgentError, ApprovalQuestion, HybridRules, OfflineProvider, TaskProfile

TEXT = {"content": [{"type": "text", "text": "12:30"}]}


def names_in(request: dict[str, Any]) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in request["tools"]]


def without_marks(value: Any) -> Any:
    """Return messages without marks of the cache, and texts as blocks."""
    if isinstance(value, list):
        return [without_marks(each) for each in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("content"), str):
        value = {**value, "content": [{"type": "text", "text": value["content"]}]}
    return {name: without_marks(each) for name, each in value.items() if name != "cache_control"}


def rows(number: int) -> dict[str, Any]:
    return {"structuredContent": {"rows": [{"id": place} for place in range(number)]}}


async def test_direct_calls_have_the_tools_own_schemas_and_results(
    model: ModelServer, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.answers = {"github__list_issues": rows(300), "time__now": TEXT}
    model.rewrite([uses("github__list_issues", repo="r"), uses("time__now")], [says("300, at 12:30.")])
    answer = await make_agent(mode="direct", user="u-1", conversation="c-1").run("How many issues, and when?")
    assert (answer.text, answer.trace.mode) == ("300, at 12:30.", "direct")
    assert names_in(model.requests[0]) == ["github__list_issues", "time__now"]
    assert json.dumps(model.requests[1]).count('\\"id\\"') == 300
    assert [(call["name"], call["arguments"]) for call in gateway.calls] == [
        ("github__list_issues", {"repo": "r"}),
        ("time__now", {}),
    ]
    query = gateway.queries[-1]
    assert (query["mode"], query["user"], query["conversation"], query["tools"]) == (
        "direct",
        "u-1",
        "c-1",
        "github.*,time.*",
    )
    assert gateway.executions == []


async def test_a_direct_call_that_fails_is_the_model_s_to_correct(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.answers = {"time__now": "there is no tool 'time__now'", "github__list_issues": {**TEXT, "isError": True}}
    messages.rewrite(
        [uses("time__now"), uses("github__list_issues"), uses("execute_code", code="1")], [says("It fails.")]
    )
    answer = await make_agent(mode="direct").run("task")
    refused, failed, unknown = results_in(messages.requests[1])
    assert (refused["content"], refused["is_error"]) == ("there is no tool 'time__now'", True)
    assert failed["content"] == "12:30"
    assert unknown["content"] == "there is no tool 'execute_code'"
    assert len([step for step in answer.trace.steps if step.failed]) == 5


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        (True, {"action": "accept", "content": {"decision": "Approve"}}),
        (False, {"action": "accept", "content": {"decision": "Deny"}}),
        ("no", {"action": "accept", "content": {"decision": "Deny", "comment": "no"}}),
        (None, {"action": "cancel"}),
    ],
)
async def test_the_application_decides_about_direct_calls(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent, answer: Any, form: dict[str, Any]
) -> None:
    asked: list[ApprovalQuestion] = []

    async def decide(question: ApprovalQuestion) -> Any:
        asked.append(question)
        return answer

    gateway.consent, gateway.answers = {"time__now"}, {"time__now": TEXT}
    messages.rewrite([uses("time__now")], [says("Done.")])
    await make_agent(mode="direct", on_approval=decide).run("task")
    assert [(each.tool, each.arguments, each.execution) for each in asked] == [("time.now", "{}", None)]
    assert gateway.calls[1]["requestState"] == "s1"
    assert gateway.calls[1]["inputResponses"] == {"approval": form}
    capabilities = gateway.calls[0]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert capabilities == {"elicitation": {"form": {}}}


async def test_a_hybrid_agent_makes_one_small_call_directly(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.answers = {"time__now": TEXT}
    messages.rewrite([uses("time__now")], [says("12:30")])
    answer = await make_agent(mode="hybrid", rules=HybridRules(direct_tools=1)).run("now")
    assert (answer.trace.mode, answer.trace.reason) == ("direct", "one small call is expected")
    assert names_in(messages.requests[0]) == ["search_tools", "execute_code", "time__now"]
    assert answer.trace.steps[0].text == "direct (small): one small call is expected"


async def test_a_direct_task_is_offered_the_best_matches_that_fit_together(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    large = tool("github", "list_issues", "list all issues of a repository, " + "with their labels, " * 400)
    gateway.tools = [large, tool("time", "now"), tool("time", "zones")]
    messages.rewrite([says("12:30")], [says("None.")])
    rules = HybridRules(max_definition_tokens=150)
    assert (await make_agent(mode="hybrid", rules=rules).run("now")).trace.mode == "direct"
    assert names_in(messages.requests[0]) == ["search_tools", "execute_code", "time__now"]
    trace = (await make_agent(mode="hybrid", rules=rules).run("list all issues")).trace
    assert (trace.mode, "the definitions have about" in trace.reason) == ("code", True)


async def test_a_conversation_that_begins_with_code_pays_for_no_definitions(
    messages: MessagesApi, make_agent: MakeAgent
) -> None:
    messages.rewrite([says("Done.")])
    await make_agent(mode="hybrid").run("Poll the time until it is now.")
    assert names_in(messages.requests[0]) == ["search_tools", "execute_code"]


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("Poll the channel until the release is out.", "the task waits for something"),
        ("Read 5,000 rows of the sheet.", "5000 rows are expected, more than 100"),
        ("Compare github and time.", "2 servers are needed"),
        ("Close each of them.", ""),
        ("For each user send a note.", "10 calls are expected, more than 3"),
        ("What is the average of the amounts?", "the answer reduces much data"),
    ],
)
async def test_a_hybrid_agent_works_by_code_if_a_rule_applies(
    messages: MessagesApi, make_agent: MakeAgent, task: str, reason: str
) -> None:
    messages.rewrite([says("Done.")])
    answer = await make_agent(mode="hybrid").run(task)
    assert answer.trace.mode == "code"
    assert answer.trace.reason == (reason or "10 calls are expected, more than 3")
    asked, notice = messages.requests[0]["messages"][0]["content"]
    assert (asked["text"], notice["text"]) == (
        task,
        f"Do this task by code, not by direct calls: {answer.trace.reason}.",
    )


async def test_a_hybrid_conversation_keeps_its_prompt_its_tools_and_its_messages_from_task_to_task(
    model: ModelServer, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.answers = {"time__now": TEXT}
    gateway.runs = [Run(stdout="5000")]
    model.rewrite(
        [uses("time__now")],
        [says("12:30")],
        [uses("time__now"), uses("execute_code", code="print(5000)")],
        [says("5000")],
        [uses("time__now")],
        [says("12:30")],
    )
    agent = make_agent(mode="hybrid", rules=HybridRules(direct_tools=1))
    modes = [(await agent.run(task)).trace.mode for task in ("now", "Read 5,000 rows of the sheet now.", "now")]
    assert modes == ["direct", "code", "direct"]
    assert len({str(names_in(request)) for request in model.requests}) == 1
    assert "this task is done by code (5000 rows are expected, more than 100)" in str(
        model.requests[3][model.conversation][-2:]
    )
    assert (len(gateway.calls), len(gateway.executions)) == (2, 1)
    first, last = (
        without_marks(model.requests[0][model.conversation]),
        without_marks(model.requests[-1][model.conversation]),
    )
    assert last[: len(first)] == first


async def test_the_scripted_model_reads_the_task_and_not_what_is_appended_to_it(
    gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run(stdout="3")]
    agent = make_agent(mode="hybrid", provider=OfflineProvider())
    answer = await agent.run("For each repository list issues, repo=web.")
    assert (answer.trace.mode, answer.text.endswith("3")) == ("code", True)
    assert gateway.executions[0]["context"]["arguments"] == {"repo": "web"}


async def test_a_task_whose_tools_the_conversation_does_not_define_is_done_by_code(
    messages: MessagesApi, make_agent: MakeAgent
) -> None:
    messages.rewrite([says("12:30")], [says("None.")])
    agent = make_agent(mode="hybrid", rules=HybridRules(direct_tools=1))
    await agent.run("now")
    trace = (await agent.run("list issues")).trace
    assert (trace.mode, trace.reason) == ("code", "the conversation began with other direct tools")
    assert names_in(messages.requests[1]) == ["search_tools", "execute_code", "time__now"]


async def test_servers_that_come_later_are_told_with_the_next_task(
    model: ModelServer, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    model.rewrite([says("Hello.")], [says("Sent.")], [says("Sent.")])
    agent = make_agent(tools=["*.*"])
    await agent.run("Hello.")
    gateway.tools.append(tool("mail", "send"))
    for task in ("Send a mail.", "Send another mail."):
        await agent.run(task)
    told = "The servers whose tools your code may call are now: github, mail, time."
    assert [str(request).count(told) for request in model.requests] == [0, 1, 1]


async def test_a_kill_switch_in_a_conversation_begins_a_new_one_with_the_texts_so_far(
    model: ModelServer, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run(stdout="1")]
    model.rewrite([uses("execute_code", code="print(1)")], [says("It is 1.")], [says("It was 1.")], [says("Still 1.")])
    is_on = False
    agent = make_agent(kill_switch=lambda: is_on)
    await agent.run("What is it?")
    is_on = True
    assert (await agent.run("What was it?")).trace.mode == "direct"
    await agent.run("And now?")
    assert names_in(model.requests[2]) == ["github__list_issues", "time__now"]
    assert ("What is it?" in str(model.requests[2]), "It is 1." in str(model.requests[3])) == (True, True)
    assert "print(1)" not in str(model.requests[2][model.conversation])


async def test_a_new_conversation_has_the_tasks_so_far_without_what_was_appended_to_them(
    model: ModelServer, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    model.rewrite([says("1")], [says("2")])
    is_on = False
    agent = make_agent(mode="hybrid", kill_switch=lambda: is_on)
    await agent.run("How many issues are there in total?")
    assert "by code, not by direct calls" in str(model.requests[0][model.conversation])
    is_on = True
    await agent.run("And now?")
    assert "by code, not by direct calls" not in str(model.requests[1][model.conversation])


async def test_what_the_application_expects_precedes_the_words_of_the_task(
    messages: MessagesApi, make_agent: MakeAgent
) -> None:
    messages.rewrite([says("Done.")], [says("Done.")], [says("Done.")])
    assert (await make_agent(mode="hybrid").run("now", expected=TaskProfile(rows=101))).trace.mode == "code"
    by_rows = await make_agent(mode="hybrid").run("Read 5,000 rows.", expected=TaskProfile(rows=5))
    assert by_rows.trace.mode == "direct"
    small = make_agent(mode="hybrid", rules=HybridRules(max_definition_tokens=10))
    assert "more than 10" in (await small.run("now")).trace.reason


async def test_a_hybrid_task_that_needs_more_calls_or_rows_is_sent_to_code(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.answers = {"github__list_issues": rows(101), "time__now": TEXT}
    gateway.runs = [Run(stdout="101")]
    messages.rewrite(
        [uses("github__list_issues", repo="r"), *[uses("time__now")] * 3],
        [uses("execute_code", code="print(101)")],
        [says("101")],
    )
    answer = await make_agent(mode="hybrid").run("now")
    large, small, _, refused = results_in(messages.requests[1])
    assert "the result has 101 rows, more than 100: call the tool by code" in large["content"]
    assert small["content"] == "12:30"
    assert (refused["is_error"], "more than 3 calls are needed" in refused["content"]) == (True, True)
    assert (len(gateway.calls), len(gateway.executions)) == (3, 1)
    modes = [step.text.partition(":")[0] for step in answer.trace.steps if step.kind == "mode"]
    assert modes == ["direct (small)", "code (max_rows)", "code (max_calls)"]


@pytest.mark.parametrize(
    ("value", "switch", "reason"),
    [
        ("1", False, "kill switch: $MCP_EXEC_FORCE_DIRECT"),
        ("off", True, "kill switch: the application's option"),
        ("", lambda: True, "kill switch: the application's function"),
        ("", lambda: 1 / 0, "kill switch: the application's function failed"),
    ],
)
@pytest.mark.parametrize("mode", ["code", "hybrid"])
async def test_the_kill_switch_forces_direct_calls(
    messages: MessagesApi,
    make_agent: MakeAgent,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    switch: Any,
    reason: str,
    mode: str,
) -> None:
    monkeypatch.setenv("MCP_EXEC_FORCE_DIRECT", value)
    messages.rewrite([says("Done.")])
    answer = await make_agent(mode=mode, kill_switch=switch).run("task")
    assert (answer.trace.mode, answer.trace.reason) == ("direct", reason)
    assert names_in(messages.requests[0]) == ["github__list_issues", "time__now"]


async def test_a_kill_switch_that_is_off_or_unreadable_is_noticed(
    messages: MessagesApi, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def off() -> bool:
        return False

    messages.rewrite([says("Done.")])
    assert (await make_agent(kill_switch=off).run("task")).trace.mode == "code"
    monkeypatch.setenv("MCP_EXEC_FORCE_DIRECT", "perhaps")
    with pytest.raises(AgentError, match="is 'perhaps'; it must be one of 1, true, yes, on, 0, false, no, off"):
        await make_agent().run("task")


def assigned(**fields: str) -> dict[str, Any]:
    return {"rollout": "code-mode", "unit": "u-1", "enrolled": True, "phase": "Progressing", **fields}


async def test_a_rollout_assigns_the_mode_and_the_usage_is_reported(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.assignment = assigned(arm="control", mode="direct", stage="canary")
    messages.rewrite([says("Done.")])
    agent = make_agent(rollout="code-mode", user="u-1", report=True, conversation="c-1", use_case="workflow")
    answer = await agent.run("task")
    assert (answer.trace.mode, answer.trace.reason) == ("direct", "arm control of rollout code-mode")
    assert gateway.assigned == [{"path": "/v1/rollouts/code-mode/assignments", "unit": "u-1"}]
    (report,) = gateway.reports
    tokens = answer.trace.tokens
    assert (
        report.items()
        >= {
            "conversation": "c-1",
            "model": "claude-sonnet-5-5",
            "mode": "direct",
            "turns": 1,
            "inputTokens": tokens.input,
            "outputTokens": tokens.output,
            "counted": "provider",
            "success": True,
            "user": "u-1",
            "useCase": "workflow",
            "rollout": "code-mode",
            "unit": "u-1",
        }.items()
    )
    assert "arm" not in report


async def test_counting_tokens_assigns_nobody_to_an_arm(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    assert (await make_agent(rollout="code-mode", unit="u-1").count_tokens("task")).input > 0
    assert gateway.assigned == []


@pytest.mark.parametrize(
    "assignment", [problem(404, "not-found"), assigned(arm="pool-b"), assigned(arm="x", mode="other")]
)
async def test_without_an_assigned_mode_the_default_is_used(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent, assignment: Any
) -> None:
    gateway.assignment = assignment
    messages.rewrite([says("Done.")])
    answer = await make_agent(rollout="code-mode", unit="u-1", mode="code").run("task")
    assert answer.trace.mode == "code"
    assert answer.trace.reason.endswith("default")


async def test_feedback_is_reported_for_a_conversation(gateway: AgentGateway) -> None:
    async with gateway.client() as client:
        await client.conversations.report_feedback("c-1", 4, id="f-1", comment="fast")
    assert gateway.reports == [{"conversation": "c-1", "id": "f-1", "rating": 4, "comment": "fast"}]


async def test_a_report_that_is_refused_does_not_fail_the_task(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.report_refusal = problem(503, "unavailable", "records are off")
    messages.rewrite([says("Done.")])
    assert (await make_agent(report=True).run("task")).text == "Done."
    assert "was not reported: 503 unavailable: records are off" in caplog.text


async def test_a_failed_task_is_reported_as_such(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    messages.rewrite([])
    with pytest.raises(AgentError):
        await make_agent(report=True).run("task")
    assert [report["success"] for report in gateway.reports] == [False]


def test_a_rollout_needs_a_unit_and_a_mode_must_exist(make_agent: MakeAgent, messages: MessagesApi) -> None:
    with pytest.raises(ValueError, match="needs a unit or a user"):
        make_agent(rollout="code-mode")
    with pytest.raises(ValueError, match="it must be code, direct or hybrid"):
        make_agent(mode="fast")


def test_rules_can_be_read_and_set() -> None:
    rules = HybridRules.from_mapping({"max_rows": 50, "polling": False})
    assert rules.to_mapping() | {"max_rows": 100, "polling": True} == HybridRules().to_mapping()
    assert rules.choose(TaskProfile(polling=True)).mode == "direct"
    assert rules.choose(TaskProfile(rows=51)).rule == "max_rows"
    with pytest.raises(ValueError, match="unknown rule 'rows'; allowed are max_rows, max_calls"):
        HybridRules.from_mapping({"rows": 5})
    with pytest.raises(ValueError, match="max_rows is True; it must be a whole number"):
        HybridRules(max_rows=True)
    with pytest.raises(ValueError, match="polling is 1; it must be true or false"):
        HybridRules(polling=1)  # type: ignore[arg-type]
