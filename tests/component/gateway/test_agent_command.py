"""`mcp-exec agent` between the Messages API and a gateway."""

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.conftest import KEY, Gateway, serving
from tests.support.api_server import FakeApiServer
from tests.support.broker import running_broker
from tests.support.model_servers.chat_api import KEY as CHAT_KEY
from tests.support.model_servers.chat_api import ChatApi
from tests.support.model_servers.messages_api import KEY as MODEL_KEY
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.script import refused, results_in, says, uses

from mcp_exec_client.__main__ import main

CODE = "from servers.github import list_issues\nprint(len(await list_issues(owner='o', repo='r')))"


@pytest.fixture
async def gateway(api: FakeApiServer) -> AsyncIterator[Gateway]:
    async with running_broker(api), serving(api, broker_service="mcp-exec-broker") as made:
        made.finish_all()
        yield made


Run = Callable[..., Any]


@pytest.fixture
def run(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command with a scripted model; return its exit code, answer, steps and trace."""

    async def command(model: MessagesApi, *options: str) -> tuple[str, str, list[str], dict[str, Any]]:
        trace = tmp_path / "trace.json"

        def call() -> str:
            try:
                arguments = ["--gateway", gateway.url, "--api-key", KEY, "--trace", str(trace), *options]
                main(["agent", "How many issues are open?", *arguments])
            except SystemExit as ended:
                return str(ended.code)
            return "0"

        with model.serving():
            monkeypatch.setenv("ANTHROPIC_API_KEY", MODEL_KEY)
            monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
            end = await asyncio.to_thread(call)
        said = capsys.readouterr()
        steps = said.err.splitlines()
        return end if end == "0" else steps.pop(), said.out, steps, json.loads(trace.read_text())

    return command


async def test_a_model_searches_reads_codes_executes_and_answers_by_the_results(run: Run, gateway: Gateway) -> None:
    model = MessagesApi(
        [says("Let me see."), uses("search_tools", query="issues")],
        [uses("search_tools", query="list issues", detail_level="full", limit=1)],
        [uses("execute_code", code=CODE, context={"owner": "o"})],
        lambda request: [says(f"There are {json.loads(results_in(request)[0]['content'])['stdout'].strip()}.")],
    )
    end, answer, said, trace = await run(model, "--tool", "github.*")
    assert (end, answer) == ("0", "There are 1.\n")
    kinds = ["mode", "search", "describe", "code", "execute", "results", "answer"]
    assert [step["kind"] for step in trace["steps"]] == kinds
    assert [line.split()[0] for line in said] == [*kinds[:4], "|", *kinds[4:]]
    assert "  | 1" in said
    assert (trace["turns"], trace["task"]) == (4, "How many issues are open?")
    assert trace["input_tokens"] > trace["output_tokens"] > 0
    (execution,) = gateway.executions.values()
    assert (execution["spec"]["code"], execution["spec"]["tools"]) == (CODE, ["github.*"])
    assert execution["spec"]["context"] == {"owner": "o"}
    assert "github" in model.requests[0]["system"][0]["text"]
    (described,) = json.loads(results_in(model.requests[2])[0]["content"])
    assert "input_schema" in described


async def test_a_model_sees_only_the_tools_that_its_code_may_call(run: Run) -> None:
    model = MessagesApi([uses("search_tools", query="", limit=50)], [says("done")])
    _, _, _, trace = await run(model, "--tool", "github.create_issue")
    found = json.loads(results_in(model.requests[1])[0]["content"])
    assert [(each["server"], each["name"]) for each in found] == [("github", "create_issue")]
    assert trace["steps"][1]["text"].endswith("1 tools")


@pytest.mark.parametrize(
    ("used", "reason"),
    [
        (uses("search_tools", query="x", detail_level="everything"), "detail_level must be one of"),
        (uses("search_tools", query="x", depth=1), "unknown: depth"),
        (uses("execute_code", code=" "), "code must be a text with a block"),
        (uses("execute_code", code="1", language="perl"), "unknown: language"),
        (uses("execute_code", code="x" * (257 * 1024)), "262144"),
        (uses("execute_code", code="1", context=["a"]), "context: "),
        (uses("shell", command="ls"), "there is no tool 'shell'"),
    ],
)
async def test_a_model_receives_the_reason_of_an_invalid_tool_use_and_may_go_on(
    run: Run, used: dict[str, Any], reason: str
) -> None:
    model = MessagesApi([used], [says("I see.")])
    end, answer, _, trace = await run(model, "--tool", "github.*")
    (result,) = results_in(model.requests[1])
    assert result["is_error"]
    assert reason in result["content"]
    assert (end, answer) == ("0", "I see.\n")
    assert [step["kind"] for step in trace["steps"] if step["failed"]] == ["results"]


async def test_a_model_receives_the_error_of_its_code(run: Run, gateway: Gateway) -> None:
    error = {"kind": "UserError", "type": "ToolError", "message": "no parameter ownr; there are owner, repo"}
    gateway.finish_all(phase="Failed", reason="UserError", error=error)
    model = MessagesApi([uses("execute_code", code="1"), uses("execute_code", code="2")], [says("It can't be done.")])
    await run(model, "--tool", "github.*")
    first, second = results_in(model.requests[1])
    assert json.loads(first["content"])["error"]["message"] == error["message"]
    assert json.loads(second["content"])["phase"] == "Failed"


async def test_a_tool_that_stands_late_in_the_search_is_found_where_code_may_call_no_other(run: Run) -> None:
    model = MessagesApi([uses("search_tools", query="create", limit=1)], [says("done")])
    await run(model, "--tool", "github.create_pull_request")
    found = json.loads(results_in(model.requests[1])[0]["content"])
    assert [each["name"] for each in found] == ["create_pull_request"]


@pytest.mark.parametrize("options", [("--pool", "nowhere"), ("--tool", "github")])
async def test_what_is_wrong_with_the_caller_s_options_ends_it_and_is_not_the_model_s_to_mend(
    run: Run, options: tuple[str, str]
) -> None:
    model = MessagesApi([uses("execute_code", code="1")])
    end, *_ = await run(model, *options)
    assert end.startswith("mcp-exec: the gateway rejected the request: ")
    assert len(model.requests) == 1


async def test_without_a_key_for_the_model_it_is_said_which_variable_to_set(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    arguments = ["agent", "a task", "--gateway", gateway.url, "--api-key", KEY]
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, arguments)
    said = capsys.readouterr().err
    assert "provider anthropic needs $ANTHROPIC_API_KEY, or use --offline" in said
    assert "it is the default: --provider, $LLM_PROVIDER or llm.provider names another, of anthropic, bedrock" in said


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"AZURE_OPENAI_ENDPOINT": "https://a.example"}, "needs $AZURE_OPENAI_API_KEY, or use --offline\n"),
        ({"AZURE_OPENAI_API_KEY": "k"}, "needs $AZURE_OPENAI_ENDPOINT (or llm.azure_endpoint), or use --offline\n"),
    ],
)
async def test_only_the_setting_that_is_missing_is_named(
    call: Run, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], missing: str
) -> None:
    for name in ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    end, _, notes = await call("agent", "task", "--provider", "azure", "--model", "m")
    assert (end, missing in notes) == ("2", True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--timeout", "0"), "between 1 and 3600"),
        (("--max-turns", "x"), "invalid"),
        (("--steps", "1"), "unrecognized"),
        (("--max-money", "x"), "is not an amount"),
        (("--max-money", "-1"), "must be more than 0"),
        (("--price", "3"), "must be INPUT,OUTPUT"),
        (("--mode", "fast"), "invalid choice"),
        (("--provider", "bard"), "invalid choice"),
        (("--effort", "some"), "invalid choice"),
    ],
)
def test_options_that_are_wrong_are_refused(
    options: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["agent", "a task", *options])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


async def test_a_model_that_never_answers_is_stopped_and_what_it_did_is_kept(run: Run) -> None:
    model = MessagesApi(*[[uses("search_tools", query="again")]] * 3)
    end, answer, _, trace = await run(model, "--tool", "github.*", "--max-turns", "3")
    assert (end, answer) == (
        "mcp-exec: the model gave no answer within 3 turns; --max-turns, or AgentLimits(turns=...), allows more",
        "",
    )
    assert [step["kind"] for step in trace["steps"]] == ["mode", *["search"] * 3]


async def test_a_gateway_that_refuses_the_key_ends_it_with_its_words(run: Run) -> None:
    end, *_ = await run(MessagesApi(), "--api-key", "wrong")
    assert end.startswith("mcp-exec: the gateway did not list tools: 401")


async def test_a_model_that_is_refused_ends_it_with_the_api_s_words(run: Run) -> None:
    model = MessagesApi(refused(401))
    end, *_ = await run(model)
    said = f"mcp-exec: the model's API at {model.url} refused the request: 401 authentication_error: "
    assert end.startswith(said)


async def test_a_model_that_can_not_be_reached_is_named_with_its_address(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setenv("ANTHROPIC_API_KEY", MODEL_KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    monkeypatch.setattr("mcp_exec_client.agent.providers.attempts.FIRST_DELAY", 0.001)
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main, ["agent", "task", "--gateway", gateway.url, "--api-key", KEY])
    said = f"{ended.value.code}{capsys.readouterr().err}"
    assert f"the model's API at {url}" in said
    assert "cannot be reached" in said
    assert "check $ANTHROPIC_BASE_URL" in said


@pytest.fixture
def call(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command with this gateway; return its exit code and what it wrote."""

    async def command(*words: str) -> tuple[str, str, str]:
        def call() -> str:
            try:
                main([*words, "--gateway", gateway.url, "--api-key", KEY])
            except SystemExit as ended:
                return str(ended.code)
            return "0"

        end = await asyncio.to_thread(call)
        said = capsys.readouterr()
        return end, said.out, said.err

    return command


async def test_a_scripted_model_needs_no_key_and_works_by_code(
    call: Run, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    task = "create an issue owner=octocat"
    end, answer, _ = await call("agent", "--offline", task, "--tool", "github.*", "--context", "limit:=3")
    assert (end, answer) == ("0", "Without a model, a script did this. The result: 1\n")
    (execution,) = gateway.executions.values()
    given = execution["spec"]["context"]
    assert (given["tool"], given["arguments"], given["limit"]) == ("github.create_issue", {}, 3)


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        ((), "2", "no tool is allowed without --tool; --tool 'github.*' allows tools; servers: github"),
        (("--tool", "filesystem.*"), "3", "no tool matches --tool filesystem.*; --tool 'github.*' allows tools; ser"),
    ],
    ids=["none", "another"],
)
async def test_a_scripted_model_without_tools_says_how_to_allow_some(
    call: Run, gateway: Gateway, options: tuple[str, ...], code: str, problem: str
) -> None:
    end, answer, notes = await call("agent", "--offline", "create an issue", *options)
    assert (end, answer, problem in notes) == (code, "", True)
    assert gateway.executions == {}


async def test_a_model_without_tools_works_after_a_note(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MessagesApi([says("Hello.")])
    with model.serving():
        monkeypatch.setenv("ANTHROPIC_API_KEY", MODEL_KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        end, answer, notes = await call("agent", "Say hello.", "--tool", "gitlab.*")
    assert (end, answer) == ("0", "Hello.\n")
    assert "no tool matches --tool gitlab.*; --tool 'github.*' allows tools; servers: github" in notes


async def test_a_chat_remembers_resets_and_goes_on_after_a_failure(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MessagesApi([says("Hello Ada.")], refused(400), [says("You are Ada.")], [says("No idea.")])
    lines = ["I am Ada.", "", "Fail.", "Who am I?", "/usage", "/reset", "Who am I?", "/exit", "never read"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    with model.serving():
        monkeypatch.setenv("ANTHROPIC_API_KEY", MODEL_KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        end, said, notes = await call("chat", "--price", "3,15", "--max-money", "1")
    assert (end, said) == ("0", "Hello Ada.\nYou are Ada.\nNo idea.\n")
    assert f"! the model's API at {model.url} refused the request" in notes
    assert "3 tasks, 3 turns; tokens: " in notes
    assert "; cost 0." in notes
    assert [len(request["messages"]) for request in model.requests] == [1, 3, 1]


async def test_an_endpoint_of_the_chat_api_is_used_by_its_variables(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatApi([says("Hello.")]).serving() as model:
        monkeypatch.setenv("OPENAI_API_KEY", CHAT_KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
        end, answer, _ = await call("agent", "task", "--provider", "openai", "--model", "gpt-loopback")
    assert (end, answer, model.requests[0]["model"]) == ("0", "Hello.\n", "gpt-loopback")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--provider", "openai"), "--provider openai needs --model"),
        (("--provider", "openai", "--model", "m"), "provider openai needs $OPENAI_API_KEY, or use --offline"),
        (
            ("--provider", "azure", "--model", "m"),
            "needs $AZURE_OPENAI_API_KEY and $AZURE_OPENAI_ENDPOINT (or llm.azure_endpoint), or use --offline\n",
        ),
        (
            ("--provider", "foundry"),
            "needs $ANTHROPIC_FOUNDRY_API_KEY and $ANTHROPIC_FOUNDRY_RESOURCE (or $ANTHROPIC_FOUNDRY_BASE_URL), or use",
        ),
        (("--provider", "vertex", "--model", "m"), "needs $CLOUD_ML_REGION and $ANTHROPIC_VERTEX_PROJECT_ID, or use"),
        (("--provider", "vertex"), "--provider vertex needs --model or $LLM_MODEL"),
        (("--provider", "openai", "--model", "m", "--thinking", "disabled"), "--thinking is for models of Anthropic"),
        (("--fallback", "bard"), "--fallback is 'bard'; it must be one of anthropic, bedrock"),
        (("--fallback", "openai"), "--fallback openai needs PROVIDER:MODEL"),
        (("--rollout", "code-mode"), "--rollout needs --unit or --user"),
        (("--max-money", "1"), "--max-money needs --price"),
    ],
)
async def test_options_that_lack_others_are_refused(
    call: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", MODEL_KEY)
    assert said in (await call("agent", "task", *options))[2]
