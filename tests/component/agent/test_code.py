"""Work by code: repairs, approvals, and what the model may not do."""

import json
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types import ToolUseBlock
from tests.component.agent.conftest import MakeAgent
from tests.support.agent_gateway import DIGEST, AgentGateway, Run
from tests.support.model_servers import messages_api
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.script import results_in, says, uses
from tests.support.scripted_gateway import pool, problem

from mcp_exec_client.agent import AgentError, AgentLimits, ApprovalQuestion, CodeMode

FAILED = {"kind": "UserError", "type": "ToolError", "message": "no parameter ownr"}


async def test_a_model_repairs_its_code_within_a_bound(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run(phase="Failed", error=FAILED)] * 2
    messages.rewrite(*[[uses("execute_code", code=str(number))] for number in range(3)], [says("It can't be done.")])
    answer = await make_agent(limits=AgentLimits(failures=2)).run("task")
    first, second, third = (results_in(request)[0] for request in messages.requests[1:])
    assert "no parameter ownr" in first["content"]
    assert "attempt 2 of 2" in second["content"]
    assert ("no attempt is left" in third["content"], third["is_error"]) == (True, True)
    assert (len(gateway.executions), answer.text) == (2, "It can't be done.")


async def test_success_resets_the_count_of_failures(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    failed, fine = Run(phase="Failed", error=FAILED), Run(stdout="1")
    gateway.runs = [failed, fine, failed, fine]
    messages.rewrite(*[[uses("execute_code", code="1")]] * 4, [says("Done.")])
    await make_agent(limits=AgentLimits(failures=2)).run("task")
    assert len(gateway.executions) == 4


@pytest.mark.parametrize(
    ("answer", "decision"),
    [(True, "Approve"), (False, "Deny"), ("not today", "Deny")],
)
async def test_the_application_decides_about_approvals(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent, answer: Any, decision: str
) -> None:
    asked: list[ApprovalQuestion] = []

    async def decide(question: ApprovalQuestion) -> Any:
        asked.append(question)
        return answer

    gateway.runs = [Run(approvals=("db.drop", "db.empty"), stdout="done")]
    messages.rewrite([uses("execute_code", code="drop()")], [says("Done.")])
    await make_agent(on_approval=decide).run("task")
    assert [(each.tool, each.arguments, each.execution) for each in asked] == [
        ("db.drop", '{"id": 1}', "e1"),
        ("db.empty", '{"id": 1}', "e1"),
    ]
    comment = {"comment": answer} if isinstance(answer, str) else {}
    expected = {"decision": decision, "argumentsDigest": DIGEST, **comment}
    assert gateway.decisions == [{"id": "a0", **expected}, {"id": "a1", **expected}]


async def test_an_application_that_fails_to_decide_denies(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    async def decide(question: ApprovalQuestion) -> bool:
        raise RuntimeError("no connection to the page")

    gateway.runs = [Run(approvals=("db.drop",))]
    messages.rewrite([uses("execute_code", code="drop()")], [says("Denied.")])
    await make_agent(on_approval=decide).run("task")
    (decided,) = gateway.decisions
    assert (decided["decision"], decided["comment"]) == ("Deny", "the application could not decide")


async def test_code_whose_stream_is_lost_is_waited_for(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run(stdout="1", stream_lost=True)]
    messages.rewrite([uses("execute_code", code="1")], [says("One.")])
    assert (await make_agent().run("task")).text == "One."
    assert '"stdout": "1"' in results_in(messages.requests[1])[0]["content"]


async def test_the_model_cannot_replace_the_application_s_context(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run()]
    messages.rewrite(
        [uses("execute_code", code="1", context={"user_id": "other"})],
        [uses("execute_code", code="1", context={"limit": 3})],
        [says("Done.")],
    )
    await make_agent(context={"user_id": "u-1"}).run("task")
    (refused,) = results_in(messages.requests[1])
    assert (refused["is_error"], "user_id come from the application" in refused["content"]) == (True, True)
    assert [each["context"] for each in gateway.executions] == [{"limit": 3, "user_id": "u-1"}]


async def test_code_that_the_gateway_refuses_is_the_model_s_to_correct(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    errors = [{"field": "code", "message": "line 1: import of os"}]
    gateway.refusal = problem(422, "code-refused", "the code is refused", errors=errors)
    messages.rewrite([uses("execute_code", code="import os")], [says("I see.")])
    await make_agent().run("task")
    assert "the code is refused" in results_in(messages.requests[1])[0]["content"]


async def test_a_gateway_that_refuses_the_application_ends_the_task(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.refusal = problem(403, "forbidden", "you may not create executions")
    messages.rewrite([uses("execute_code", code="1")])
    with pytest.raises(AgentError, match="the gateway rejected the request: 403"):
        await make_agent().run("task")


async def test_more_uses_at_once_than_possible_are_refused(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    messages.rewrite([uses("search_tools", query=str(number)) for number in range(34)], [says("Done.")])
    await make_agent().run("task")
    refused = [each for each in results_in(messages.requests[1]) if each.get("is_error")]
    assert [each["content"] for each in refused] == ["at most 32 uses of tools are possible at once"] * 2


async def test_the_prompt_lists_the_libraries_of_the_pool(gateway: AgentGateway) -> None:
    pandas = {"name": "pandas", "version": "2.3.1", "imports": ["pandas"]}
    gateway.pools = [
        pool("default", python="3.13.5", libraries=[]),
        pool("data", python="3.13.5", libraries=[pandas]),
    ]
    async with gateway.client() as client:
        assert "no libraries but the standard one" in await CodeMode(client).system_prompt()
        assert "libraries: pandas 2.3." in await CodeMode(client, pool="data").system_prompt()
        gateway.pools = [pool("default")]
        assert "libraries" not in await CodeMode(client).system_prompt()


async def test_code_may_be_in_another_language(gateway: AgentGateway) -> None:
    gateway.runs = [Run(stdout="2")]
    gateway.pools = [pool("default", python="3.13.5", libraries=[])]
    async with gateway.client() as client:
        code = CodeMode(client, tools=["github.list_issues"], language="typescript")
        prompt = await code.system_prompt()
        assert 'import { TOOL } from "servers/SERVER"' in prompt
        assert "Servers whose tools your code may call: github." in prompt
        assert "Python" not in prompt + str(code.tools())
        [_, execute] = code.tools()
        assert execute["description"].startswith("Run a block of TypeScript in a fresh sandbox")
        use = {"type": "tool_use", "id": "1", "name": "search_tools", "input": {"query": "issues"}}
        assert "import { listIssues }" in (await code.handle(use))["content"]
        await code.handle({**use, "name": "execute_code", "input": {"code": "console.log(2)"}})
        refused = await code.handle({**use, "name": "execute_code", "input": {}})
    assert gateway.executions[0]["language"] == "typescript"
    assert refused["content"] == "code must be a text with a block of TypeScript"
    assert CodeMode.extract_code("A:\n```ts\nlet a\n```\n```python\nb\n```", language=code.language) == "let a"


async def test_the_parts_work_in_an_application_s_own_loop(messages: MessagesApi, gateway: AgentGateway) -> None:
    gateway.runs = [Run(stdout="2 issues\n")]
    messages.rewrite([uses("execute_code", code="print('2 issues')")], [says("There are 2.")])
    async with gateway.client() as client, AsyncAnthropic(api_key=messages_api.KEY, base_url=messages.url) as sdk:
        code = CodeMode(client, tools=["github.*"], user="u-1")
        history: list[Any] = [{"role": "user", "content": "How many issues?"}]
        while True:
            message = await sdk.messages.create(
                model="m",
                max_tokens=1000,
                system=await code.system_prompt(),
                tools=code.tools(),  # type: ignore[arg-type]
                messages=history,
            )
            used = [block for block in message.content if isinstance(block, ToolUseBlock)]
            if not used:
                break
            history.append({"role": "assistant", "content": message.content})
            history.append({"role": "user", "content": [await code.handle(block) for block in used]})
    assert json.loads(results_in(messages.requests[1])[0]["content"])["stdout"] == "2 issues\n"
    assert gateway.executions[0]["user"] == "u-1"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("no code", None),
        ("```python\nprint(1)\n```", "print(1)"),
        ("A:\n```py\na = 1\n```\nand\n```Python\nb = 2\n```", "a = 1\n\nb = 2"),
        ("```js\nlet a\n```", None),
        ("```python\n\n```", None),
        ("```python\nunfinished", None),
    ],
)
def test_code_is_extracted_from_fenced_blocks_of_python(text: str, code: str | None) -> None:
    assert CodeMode.extract_code(text) == code
