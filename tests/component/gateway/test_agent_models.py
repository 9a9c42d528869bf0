"""`mcp-exec agent` with models that refuse requests, each in its vendor's words."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.conftest import KEY, Gateway, serving
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker, running_broker, tool
from tests.support.model_servers.chat_api import KEY as MODEL_KEY
from tests.support.model_servers.chat_api import ChatApi
from tests.support.model_servers.messages_api import KEY as ANTHROPIC_KEY
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.responses_api import ResponsesApi
from tests.support.model_servers.script import Request, Turn, refused, refuses, says, uses
from tests.support.model_servers.server import ModelServer
from tests.support.model_servers.vendors import (
    CODEX,
    AzureCodex,
    AzureOfOldVersion,
    IndexZeroWithoutIds,
    LlamaWithoutJinja,
    NewIdInEachPart,
    Ollama,
    OllamaWithoutTools,
    OnlyResponses,
    SmallAnswers,
    VllmWithoutParser,
    VllmWithSmallWindow,
    azure_error,
    openai_error,
    refuse_temperature,
)

from mcp_exec_client.__main__ import main

DOCS = Path(__file__).parents[3] / "docs"
FILES = Path(__file__).parents[2] / "data" / "local_framework"
"""Files of a local framework as its documentation has them."""
CODE = "print(6 * 7)"
USED = [uses("execute_code", code=CODE)]
FENCED = [says(f"I compute it:\n```python\n{CODE}\n```\n")]
DONE = [says("It is 42.")]
OPENAI = ("--provider", "openai", "--model", "m")
OPENAI_RESPONSES = ("--provider", "openai-responses", "--model", "m")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a command did."""

    code: str
    answer: str
    notes: str


Call = Callable[..., Awaitable[Ended]]


@pytest.fixture
async def broker(api: FakeApiServer) -> AsyncIterator[FakeBroker]:
    async with running_broker(api) as running:
        yield running


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[Gateway]:
    async with serving(api, broker_service="mcp-exec-broker") as made:
        made.finish_all()
        yield made


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the variables that files set, and wait for no model."""
    monkeypatch.setattr("mcp_exec_client.agent.providers.attempts.FIRST_DELAY", 0.001)
    before = dict(os.environ)
    for name in [name for name in before if name.startswith(("ANTHROPIC_", "OPENAI_", "AZURE_", "LLM_"))]:
        del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def call(environment: None, gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return what does a task with a model, whose address or server is given, by the variables of all endpoints."""

    async def command(model: ModelServer | str, *words: str, task: str = "What is 6 * 7?") -> Ended:
        def run() -> str:
            try:
                main(["agent", task, "--tool", "github.*", "--gateway", gateway.url, "--api-key", KEY, *words])
            except SystemExit as ended:
                return str(ended.code)
            return "0"

        with nullcontext() if isinstance(model, str) else model.serving():
            address = model if isinstance(model, str) else model.url
            os.environ |= {
                "AZURE_OPENAI_ENDPOINT": address,
                "AZURE_OPENAI_API_KEY": MODEL_KEY,
                "OPENAI_BASE_URL": f"{address}/v1",
                "OPENAI_API_KEY": MODEL_KEY,
                "ANTHROPIC_BASE_URL": address,
                "ANTHROPIC_API_KEY": ANTHROPIC_KEY,
            }
            code = await asyncio.to_thread(run)
        said = capsys.readouterr()
        return Ended(code=code, answer=said.out, notes=said.err)

    return command


def list_code(gateway: Gateway) -> list[str]:
    return [each["spec"]["code"] for each in gateway.executions.values()]


async def test_a_configuration_of_a_local_framework_is_used_as_it_is(call: Call, gateway: Gateway) -> None:
    model = AzureCodex(USED, DONE)
    ended = await call(model, "--config", str(FILES / "config.yaml"))
    assert (ended.code, ended.answer, list_code(gateway)) == ("0", "It is 42.\n", [CODE])
    assert {(request["model"], request["max_output_tokens"]) for request in model.requests} == {(CODEX, 2000)}
    about_files = [line for line in ended.notes.splitlines() if "config.yaml" in line]
    assert len(about_files) == 1
    assert "11 fields of execution and guardrails have no effect" in about_files[0]
    assert "gpt-5.1-codex-mini does not take temperature 0.3: it is not sent" in ended.notes
    assert "gpt-5.1-codex-mini is asked by the Responses API" in ended.notes
    # refused: the chat API, then the temperature; nothing is refused twice
    assert len(model.paths) == 4


async def test_the_variables_of_a_quick_start_are_used_as_they_are(call: Call, gateway: Gateway) -> None:
    model = AzureCodex(USED, DONE)
    ended = await call(model, "--provider", "azure", "--env-file", str(FILES / "quickstart.env"))
    assert (ended.code, ended.answer, list_code(gateway)) == ("0", "It is 42.\n", [CODE])


async def test_all_variables_of_a_local_framework_are_used_as_they_are(call: Call, gateway: Gateway) -> None:
    model = SmallAnswers(USED, DONE)
    ended = await call(model, "--env-file", str(FILES / "complete.env"))
    assert (ended.code, ended.answer, list_code(gateway)) == ("0", "It is 42.\n", [CODE])
    assert [request["max_completion_tokens"] for request in model.requests] == [16_384] * 2
    assert (len(model.paths), "an answer of gpt-4o-mini has at most 16384 tokens" in ended.notes) == (3, True)


async def test_a_temperature_reaches_a_model_that_takes_it(call: Call) -> None:
    for model, options, taken in (
        (ChatApi(DONE), OPENAI, 0.3),
        (ResponsesApi(DONE), ("--provider", "openai-responses", "--model", "m"), 0.3),
        (MessagesApi(DONE), ("--provider", "anthropic"), 0.3),
    ):
        ended = await call(model, *options, "--temperature", "0.3")
        assert (ended.code, model.requests[0]["temperature"]) == ("0", taken)
    os.environ["LLM_TEMPERATURE"] = "0.5"
    chat = ChatApi(DONE)
    await call(chat, *OPENAI)
    assert chat.requests[0]["temperature"] == 0.5
    os.environ["LLM_TEMPERATURE"] = "warm"
    assert "$LLM_TEMPERATURE is 'warm'; it must be from 0 to 2" in (await call(chat, *OPENAI)).notes


class Thinking(MessagesApi):
    """A model of Anthropic that thinks."""

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        message = "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode."
        return (400, self.refuse(400, message)) if "temperature" in request else None


class SmallClaude(MessagesApi):
    """A model of Anthropic whose answers have at most 4096 tokens."""

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        if (given := request["max_tokens"]) <= 4096:
            return None
        message = f"max_tokens: {given} > 4096, which is the maximum allowed number of output tokens for claude-h"
        return 400, self.refuse(400, message)


class ThinkingChat(ChatApi):
    """A model of OpenAI that thinks."""

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        return refuse_temperature(request)


class Refusing(ChatApi):
    """An endpoint with a limit of answers, in words of its own."""

    def __init__(self, words: str, *script: Any) -> None:
        super().__init__(*script)
        self.words = words

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        return (400, openai_error(self.words)) if request["max_completion_tokens"] > 4096 else None


LIMITS = (
    "max_tokens is too large: 32000. This model supports at most 4096 completion tokens, whereas you provided 32000.",
    "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 4096, but got 32000 instead.",
    "`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens`",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 4096]",
    "This model's maximum context length is 4196 tokens. However, you requested 32100 tokens (100 in the messages, "
    "32000 in the completion). Please reduce the length of the messages or completion.",
    "You passed 100 input tokens and requested 32000 output tokens. However, the model's context length is only 4196 "
    "tokens, resulting in a maximum input length of -27804 tokens.",
)


@pytest.mark.parametrize("words", LIMITS)
async def test_the_limit_of_answers_is_learned_from_a_refusal(call: Call, words: str) -> None:
    model = Refusing(words, USED, DONE)
    ended = await call(model, *OPENAI)
    assert (ended.answer, [each["max_completion_tokens"] for each in model.requests]) == ("It is 42.\n", [4096] * 2)
    assert len(model.paths) == 3


@pytest.mark.parametrize(
    ("model", "options", "refusals"),
    [
        pytest.param(AzureOfOldVersion(USED, DONE), ("--provider", "azure", "--model", "gpt-4o"), 2, id="max_tokens"),
        pytest.param(OnlyResponses(USED, DONE), OPENAI, 1, id="only Responses"),
        pytest.param(ThinkingChat(USED, DONE), (*OPENAI, "--temperature", "0"), 1, id="no temperature"),
        pytest.param(Thinking(USED, DONE), ("--temperature", "0"), 1, id="no temperature, Anthropic"),
        pytest.param(SmallClaude(USED, DONE), (), 1, id="small answers, Anthropic"),
        pytest.param(OllamaWithoutTools(FENCED, DONE), OPENAI, 1, id="no tools, Ollama"),
        pytest.param(VllmWithoutParser(FENCED, DONE), OPENAI, 1, id="no tools, vLLM"),
        pytest.param(LlamaWithoutJinja(FENCED, DONE), OPENAI, 1, id="no tools, llama.cpp"),
        pytest.param(VllmWithSmallWindow(USED, DONE), OPENAI, 2, id="a small window, vLLM"),
        pytest.param(ChatApi(FENCED, DONE), (*OPENAI, "--fenced-code"), 0, id="no tools, by an option"),
    ],
)
async def test_what_a_model_refuses_is_left_out_and_the_task_is_done(
    call: Call, gateway: Gateway, model: ModelServer, options: tuple[str, ...], refusals: int
) -> None:
    os.environ["AZURE_OPENAI_API_VERSION"] = "2024-08-01-preview"
    ended = await call(model, *options)
    assert (ended.code, ended.answer, list_code(gateway)) == ("0", "It is 42.\n", [CODE])
    assert len(model.paths) == len(model.requests) + refusals


@pytest.mark.parametrize("kind", [OllamaWithoutTools, VllmWithoutParser, LlamaWithoutJinja, VllmWithSmallWindow])
def test_the_page_of_local_models_has_the_words_of_each_server(kind: type[ChatApi]) -> None:
    request = {"model": "NAME", "tools": [], "max_completion_tokens": 32_000, "messages": []}
    rejected = kind().reject(kind.path, request)
    assert rejected is not None
    words = rejected[1]["error"]["message"].partition(": 32000")[0]
    assert words in (DOCS / "agents" / "local-models.md").read_text()


WRITTEN = json.dumps({"name": "execute_code", "arguments": {"code": CODE}})


@pytest.mark.parametrize(
    "text",
    [
        WRITTEN,
        f"```json\n{WRITTEN}\n```",
        f"<tool_call>\n{WRITTEN}\n</tool_call>",
        f"<think>A call is needed.</think>\n<tool_call>{WRITTEN}</tool_call>",
        f"[TOOL_CALLS][{WRITTEN}]",
        json.dumps({"type": "function", "function": {"name": "execute_code", "parameters": {"code": CODE}}}),
        json.dumps({"name": "execute_code", "arguments": json.dumps({"code": CODE})}),
    ],
)
async def test_a_call_that_a_model_writes_as_text_is_made(call: Call, gateway: Gateway, text: str) -> None:
    model = Ollama([says(text)], DONE)
    ended = await call(model, *OPENAI)
    assert (ended.answer, list_code(gateway)) == ("It is 42.\n", [CODE])
    assert "Result of execute_code" in str(model.requests[1]["messages"][-1])


@pytest.mark.parametrize(
    "text",
    [
        f"A call looks like this: {WRITTEN}",
        json.dumps({"name": "delete_everything", "arguments": {}}),
        json.dumps({"name": "execute_code"}),
        json.dumps({"answer": 42}),
        "```json\n{not json\n```",
        "[1, 2]",
    ],
)
async def test_an_answer_with_anything_else_is_an_answer(call: Call, gateway: Gateway, text: str) -> None:
    ended = await call(Ollama([says(text)]), *OPENAI)
    assert (ended.code, ended.answer, list_code(gateway)) == ("0", f"{text}\n", [])


@pytest.mark.parametrize("kind", [ChatApi, Ollama, IndexZeroWithoutIds, NewIdInEachPart])
async def test_parallel_calls_stay_apart(call: Call, gateway: Gateway, kind: type[ChatApi]) -> None:
    codes = ["print(1)", "print('two')"]
    ended = await call(kind([uses("execute_code", code=code) for code in codes], DONE), *OPENAI)
    assert (ended.answer, sorted(list_code(gateway))) == ("It is 42.\n", sorted(codes))


async def test_arguments_that_are_not_json_are_named_as_such(call: Call, gateway: Gateway) -> None:
    model = ChatApi([{"type": "tool_use", "id": "", "name": "execute_code", "input": '{"code": '}], DONE)
    await call(model, *OPENAI)
    assert "the arguments of execute_code are not valid JSON: send one JSON object" in str(model.requests[1])
    assert list_code(gateway) == []


WHAT_TO_DO = "put the task in other words, or name another model: --model NAME, or --fallback PROVIDER:MODEL"


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (ChatApi([refuses("I'm sorry, I can't.")]), OPENAI),
        (ResponsesApi([refuses("I'm sorry, I can't.")]), ("--provider", "openai-responses", "--model", "m")),
        (MessagesApi(Turn(blocks=[says("I'm sorry, I can't.")], stop="refusal")), ()),
    ],
)
async def test_a_refusal_is_shown_with_what_to_do(call: Call, model: ModelServer, options: tuple[str, ...]) -> None:
    ended = await call(model, *options)
    assert (ended.code, ended.answer) == ("1", "")
    assert f"the model refused: I'm sorry, I can't.; {WHAT_TO_DO}" in ended.notes


async def test_a_model_that_refuses_is_followed_by_the_next_one(call: Call, gateway: Gateway) -> None:
    model = ChatApi([refuses("I'm sorry.")], DONE)
    ended = await call(model, *OPENAI, "--fallback", "openai:n")
    assert (ended.code, ended.answer) == ("0", "It is 42.\n")
    assert [request["model"] for request in model.requests] == ["m", "n"]


class Filtering(ChatApi):
    """A deployment of Azure whose filter refuses the task."""

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        message = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
        return 400, openai_error(message, param="prompt", code="content_filter")


LATER = "after 3 attempts; try again later, or name a model that goes on: --fallback PROVIDER:MODEL"


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (MessagesApi(*[refused(529)] * 3), (), f"is overloaded: 529 overloaded_error: refused, {LATER}"),
        (ChatApi(*[refused(503)] * 3), OPENAI, f"is overloaded: 503 server_error: refused, {LATER}"),
        (ChatApi(*[refused(429)] * 3), OPENAI, "takes no more requests now: 429 invalid_request_error: refused, after"),
        (ChatApi(*[refused(500)] * 3), OPENAI, f"failed: 500 server_error: refused, {LATER}"),
        (MessagesApi(refused(401)), (), "refused the request: 401 authentication_error: refused; check $ANTHROPIC_API"),
        (ChatApi(refused(401)), OPENAI, "refused the request: 401 invalid_request_error: refused; check $OPENAI_API_"),
        (ChatApi(refused(400)), OPENAI, "refused the request: 400 invalid_request_error: refused"),
        (
            ChatApi(refused(404)),
            OPENAI,
            "404 invalid_request_error: refused; check $OPENAI_BASE_URL; or no model has the name m: it",
        ),
        (Filtering(), OPENAI, f"Azure OpenAI's content management policy.; {WHAT_TO_DO}"),
        (
            ChatApi(Turn(blocks=[says("Half of")], stop="length")),
            (*OPENAI, "--answer-tokens", "7"),
            "may have 7 tokens, or fewer if the model takes no more: --answer-tokens",
        ),
    ],
)
async def test_an_error_says_what_happened_and_what_to_do(
    call: Call, model: ModelServer, options: tuple[str, ...], said: str
) -> None:
    ended = await call(model, *options)
    assert ended.code == "1"
    assert said in ended.notes
    assert "{'" not in ended.notes


class Answering(ChatApi):
    """A server that answers each request with the same error."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__()
        self.error = (status, body)

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        return self.error


AZURE = ("--provider", "azure", "--model", "gpt-x")
NGINX = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1><hr>nginx</body></html>"
QUOTA = openai_error("You exceeded your current quota, please check your plan and billing.", code="insufficient_quota")
BALANCE = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."
NO_CREDIT = "; the account has no credit left: see the billing page of the provider, or name a model that goes on: --"
OLLAMA = {"error": {"message": "model 'm' not found", "type": "not_found_error", "param": None, "code": None}}
WINDOW = {
    "error": {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 5011,
        "n_ctx": 4096,
    }
}
LARGER = "begin a new one, or let code print less; a local server may have a larger one: `-c 16384` of llama-server"


@pytest.mark.parametrize(
    ("model", "options", "said", "requests"),
    [
        pytest.param(
            AzureCodex(),
            AZURE,
            "no deployment has the name gpt-x: check --model NAME, $AZURE_OPENAI_DEPLOYMENT_NAME or llm.azure",
            1,
            id="no deployment",
        ),
        pytest.param(
            Answering(404, azure_error("404", "Resource not found")),
            AZURE,
            "404: Resource not found; check $AZURE_OPENAI_ENDPOINT or llm.azure_endpoint; or no deployment has",
            1,
            id="wrong endpoint, Azure",
        ),
        pytest.param(
            Answering(401, azure_error("401", "Access denied due to invalid subscription key or wrong API endpoint.")),
            AZURE,
            "401: Access denied due to invalid subscription key or wrong API endpoint.; check $AZURE_OPENAI_API_KEY",
            1,
            id="wrong key, Azure",
        ),
        pytest.param(
            Answering(404, OLLAMA),
            OPENAI,
            "no model has the name m: it is misspelt, was retired, or has to be pulled (`ollama pull m`): check",
            1,
            id="not pulled, Ollama",
        ),
        pytest.param(
            Answering(404, "404 page not found"), OPENAI, "404: page not found; check $OPENAI_BASE_URL", 1, id="no /v1"
        ),
        pytest.param(Answering(429, QUOTA), OPENAI, NO_CREDIT, 1, id="no quota, OpenAI"),
        pytest.param(Answering(402, {"error": {"message": "Insufficient Balance"}}), OPENAI, NO_CREDIT, 1, id="402"),
        pytest.param(Answering(502, NGINX), OPENAI, f"failed: 502: Bad Gateway, {LATER}", 3, id="a page of nginx"),
        pytest.param(Answering(502, ""), OPENAI, f"failed: 502: Bad Gateway, {LATER}", 3, id="an empty page"),
        pytest.param(Answering(400, WINDOW), OPENAI, f"(5011 tokens of 4096); {LARGER}", 1, id="window, llama.cpp"),
    ],
)
async def test_an_error_names_the_setting_that_is_wrong(
    call: Call, model: ModelServer, options: tuple[str, ...], said: str, requests: int
) -> None:
    ended = await call(model, *options)
    assert (ended.code, len(model.paths)) == ("1", requests)
    assert said in ended.notes
    assert f"the model's API at {model.url}" in ended.notes


async def test_an_account_of_anthropic_without_credit_is_said_to_have_none(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MessagesApi()
    monkeypatch.setattr(model, "reject", lambda path, request: (400, model.refuse(400, BALANCE)))
    assert f"{BALANCE}{NO_CREDIT}" in (await call(model)).notes


@pytest.mark.parametrize(
    ("options", "variable"),
    [
        ((), "$ANTHROPIC_BASE_URL"),
        (OPENAI, "$OPENAI_BASE_URL"),
        (AZURE, "$AZURE_OPENAI_ENDPOINT"),
    ],
)
@pytest.mark.parametrize("address", ["127.0.0.1:18990/v1", "localhost:18990", "http://[::1", "http://a:port"])
async def test_an_address_that_cannot_be_one_is_refused_before_it_is_used(
    call: Call, options: tuple[str, ...], variable: str, address: str
) -> None:
    ended = await call(address, *options)
    assert (ended.code, "again in" in ended.notes) == ("2", False)
    assert variable in ended.notes
    assert f" is '{address}" in ended.notes
    assert "it must be an address such as https://HOST:PORT/PATH" in ended.notes


async def test_an_answer_that_the_filter_of_the_api_ends_is_no_refusal_of_the_model(call: Call) -> None:
    for model, options in (
        (ChatApi(Turn(blocks=[says("Half an ans")], stop="content_filter")), OPENAI),
        (ResponsesApi(Turn(blocks=[says("Half an ans")], stop="content_filter")), OPENAI_RESPONSES),
    ):
        ended = await call(model, *options)
        assert f"the API's content filter ended the answer after: Half an ans; {WHAT_TO_DO}" in ended.notes


async def test_an_empty_answer_is_asked_for_again(call: Call) -> None:
    model = ChatApi([], DONE)
    ended = await call(model, *OPENAI)
    assert (ended.code, ended.answer, model.attempts) == ("0", "It is 42.\n", 2)
    assert "! the model gave an empty answer; the request is sent again" in ended.notes
    ended = await call(ChatApi([], [], []), *OPENAI)
    assert f"the model gave an empty answer, after 3 attempts; {WHAT_TO_DO}" in ended.notes


async def test_a_model_that_goes_on_writing_code_that_fails_is_stopped_with_the_last_error(
    call: Call, gateway: Gateway
) -> None:
    error = {"kind": "UserError", "type": "ZeroDivisionError", "message": "division by zero"}
    gateway.finish_all(phase="Failed", reason="UserError", error=error)
    for model, options in (
        (ChatApi(*[[uses("execute_code", code="1/0")]] * 9), OPENAI),
        (ChatApi(*[[says("```python\n1/0\n```")]] * 9), (*OPENAI, "--fenced-code")),
    ):
        ended = await call(model, *options)
        last = ended.notes.splitlines()[-1]
        assert (ended.code, model.attempts) == ("1", 5)
        assert "3 blocks of code failed in a row, and the model gave no answer; the last one: " in last
        assert "ZeroDivisionError: division by zero" in last


async def test_a_task_that_costs_something_says_how_much_also_if_it_fails(call: Call) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
    ended = await call(ChatApi(Turn(blocks=DONE, usage=usage)), *OPENAI, "--price", "1,2")
    assert "1 turns; tokens: 1000 in, 500 out" in ended.notes
    assert "; cost 0.002" in ended.notes
    turn = Turn(blocks=[uses("search_tools", query="x")], usage=usage)
    ended = await call(ChatApi(turn), *OPENAI, "--price", "1,2", "--max-turns", "1")
    assert (ended.code, "; cost 0.002" in ended.notes) == ("1", True)


@pytest.mark.parametrize("task", ["", "  \n"])
async def test_an_empty_task_is_refused_before_a_model_reads_it(call: Call, task: str) -> None:
    model = ChatApi(DONE)
    ended = await call(model, *OPENAI, task=task)
    assert (ended.code, model.paths) == ("2", [])
    assert "TASK is empty: say what the model has to do" in ended.notes


async def test_a_delay_is_announced_once_each(call: Call) -> None:
    model = ChatApi(refused(429, retry_after_ms="1"), refused(503), DONE)
    ended = await call(model, *OPENAI)
    announced = [line for line in ended.notes.splitlines() if "; again in " in line]
    assert (ended.code, len(announced)) == ("0", 2)
    said = f"the model's API at {model.url}/v1 answers 429 invalid_request_error: refused; again in 0.1 s"
    assert said in announced[0]


@pytest.mark.parametrize(
    ("options", "variable"),
    [
        ((), "$ANTHROPIC_BASE_URL"),
        (OPENAI, "$OPENAI_BASE_URL"),
        (("--provider", "azure", "--model", "m"), "$AZURE_OPENAI_ENDPOINT or llm.azure_endpoint"),
    ],
)
async def test_a_model_that_cannot_be_reached_is_announced_before_it_is_given_up(
    call: Call, options: tuple[str, ...], variable: str
) -> None:
    os.environ["AZURE_OPENAI_API_VERSION"] = "2024-08-01-preview"

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ended = await call(address, *options)
    announced = [line for line in ended.notes.splitlines() if "; again in " in line]
    assert (ended.code, len(announced)) == ("1", 2)
    assert all("cannot be reached" in line for line in announced)
    assert f"check {variable}, the network and its proxy" in ended.notes


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("bake a cake", "no tool matches the words of the task"),
        ("get the file contents", "github.get_file_contents needs path= in the task"),
    ],
)
async def test_the_scripted_model_says_what_is_missing(
    call: Call, broker: FakeBroker, gateway: Gateway, task: str, said: str
) -> None:
    needs_path = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    reads = tool("get_file_contents", "Get the contents of a file") | {"inputSchema": needs_path}
    tools = [reads, tool("list_files", "List the files of a repository")]
    server = {"server": "github", "available": True, "description": "", "tools": tools}
    broker.catalogs["agents"] = {"hash": "two", "servers": [server]}
    ended = await call(ChatApi(), "--offline", task=task)
    assert (ended.code, ended.answer, list_code(gateway)) == ("1", "", [])
    assert said in ended.notes


UNPAIRED = "x \udce9 \ud83d"
"""Half of a character: an argument of the command line that is not UTF-8, or what some models write."""


@pytest.mark.parametrize("kind", [ChatApi, MessagesApi, ResponsesApi])
async def test_text_that_is_no_unicode_passes_through_the_loop(
    call: Call, gateway: Gateway, kind: type[ModelServer]
) -> None:
    options = {ChatApi: OPENAI, MessagesApi: (), ResponsesApi: OPENAI_RESPONSES}[kind]  # type: ignore[type-abstract]
    broken = [says(f"I compute {UNPAIRED}"), uses("execute_code", code=f"print('{UNPAIRED}')")]
    model = kind(broken, USED, [says(f"It is \N{CHECK MARK} 42 {UNPAIRED}")])
    ended = await call(model, *options, task=f"What is 6 * 7, \N{GREEK SMALL LETTER ALPHA} {UNPAIRED}?")
    assert ended.code == "0"
    assert ended.answer.startswith("It is \N{CHECK MARK} 42")
    assert "\N{GREEK SMALL LETTER ALPHA}" in json.dumps(model.requests[0], ensure_ascii=False)
