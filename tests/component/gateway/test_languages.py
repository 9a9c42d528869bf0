"""Languages at the gateway: the pool that an execution gets, refusals, sessions, skills, and what MCP clients see."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.commands import Command
from tests.component.gateway.conftest import KEY, SBP, SECRETS, Gateway, key_entry, keys_secret, pool, serving
from tests.component.gateway.mcp_client import MODERN, connecting
from tests.component.gateway.test_refusals import assert_problem
from tests.component.gateway.test_sessions import SBS, create
from tests.support.api_server import FakeApiServer
from tests.support.until import until

from mcp_exec_api.wire.executions import Execution
from mcp_exec_common.skills.folder import SkillFolder
from mcp_exec_gateway.features.mcp.code_mode.definitions import RUN_CODE

CODE = "export async function run({ a }: { a: number }) { return a; }\n"
NEW = {"name": "report", "description": "Make a report.", "code": CODE, "language": "typescript"}
POOLS = "the pools are default (python), long (python), scripts (typescript)"


async def add_pool(gateway: Gateway, name: str = "scripts", **spec: Any) -> None:
    made = pool(name)
    made["spec"] |= {"language": "typescript"} | spec
    gateway.api.put(SBP, made)
    await until(lambda: gateway.dependencies.pools.find("agents", name) is not None)


@pytest.fixture
async def gateway(api: FakeApiServer) -> AsyncIterator[Gateway]:
    async with serving(api) as made:
        await add_pool(made)
        yield made


async def spec_of(gateway: Gateway, **fields: Any) -> Any:
    """Return pool and language of the execution that a request creates."""
    answer = await gateway.post({"code": "1", **fields}, "?wait=0")
    assert answer.status == 202, answer.text
    Execution.model_validate_json(answer.text)
    spec = gateway.executions[answer.json["name"]]["spec"]
    assert (answer.json["pool"], answer.json.get("language")) == (spec["poolRef"]["name"], spec.get("language"))
    return spec["poolRef"]["name"], spec.get("language")


async def test_an_execution_gets_a_pool_that_runs_its_language(gateway: Gateway) -> None:
    assert await spec_of(gateway) == ("default", None)
    assert await spec_of(gateway, language="python") == ("default", "python")
    assert await spec_of(gateway, language="typescript") == ("scripts", "typescript")
    assert await spec_of(gateway, language="typescript", poolRef={"name": "scripts"}) == ("scripts", "typescript")
    await add_pool(gateway, "another")
    assert await spec_of(gateway, language="typescript") == ("another", "typescript"), "the first in their order"


async def test_an_execution_that_names_only_its_pool_keeps_the_language_of_the_pool(gateway: Gateway) -> None:
    assert await spec_of(gateway, poolRef={"name": "scripts"}) == ("scripts", "typescript")


async def test_a_pool_of_another_language_is_refused_with_the_pools_that_there_are(gateway: Gateway) -> None:
    answer = await gateway.post({"code": "1", "language": "typescript", "poolRef": {"name": "long"}})
    problem = assert_problem(answer, 422, "language")
    assert (problem.kind, problem.title) == ("language-not-offered", "No pool runs this language")
    assert problem.detail == f"language: pool long does not run typescript; {POOLS}"
    problem = assert_problem(await gateway.post({"code": "1", "language": "ruby"}), 422, "language")
    assert "'python' or 'typescript'" in problem.detail
    assert gateway.executions == {}


async def test_a_caller_without_a_pool_of_the_language_is_told_its_own_pools(api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, pools=["default", "long"])}))
    async with serving(api) as gateway:
        await add_pool(gateway)
        answer = await gateway.post({"code": "1", "language": "typescript"})
    problem = assert_problem(answer, 422, "language")
    assert problem.detail == "language: no pool runs typescript; the pools are default (python), long (python)"


@pytest.mark.parametrize("mode", ["Warn", "Strict"])
async def test_a_pool_that_checks_code_refuses_what_its_rules_cannot_read(gateway: Gateway, mode: str) -> None:
    await add_pool(gateway, "checked", codeCheck={"mode": mode, "allowedImports": ["json"]})
    answer = await gateway.post({"code": "1", "poolRef": {"name": "checked"}})
    problem = assert_problem(answer, 422, "language")
    assert problem.kind == "language-not-checked"
    assert problem.detail == "language: pool checked checks code before it runs, and has no rules for typescript"
    assert gateway.executions == {}


async def test_a_session_gets_a_pool_that_runs_its_language(gateway: Gateway) -> None:
    answer = await create(gateway, language="typescript")
    assert (answer.status, answer.json["pool"]) == (201, "scripts")
    (stored,) = gateway.api.collections[SBS].values()
    assert stored["spec"]["poolRef"] == {"name": "scripts"}
    assert "language" not in stored["spec"], "it is that of the pool"
    refused = await create(gateway, "b", language="typescript", poolRef={"name": "long"})
    assert assert_problem(refused, 422, "language").detail.startswith("language: pool long does not run typescript")


async def test_the_limits_of_a_caller_show_the_language_of_each_pool(gateway: Gateway) -> None:
    pools = (await gateway.ask("GET", "/v1/stats")).json["pools"]
    languages = {each["name"]: each["language"] for each in pools}
    assert languages == {"default": "python", "long": "python", "scripts": "typescript"}


async def test_a_skill_in_typescript_is_saved_shown_and_exported(gateway: Gateway) -> None:
    answer = await gateway.ask("POST", "/v1/skills", json=NEW)
    assert answer.status == 201, answer.text
    view = answer.json
    assert (view["language"], view["import"]) == ("typescript", 'import { run } from "skills/report_v1";')
    assert view["parameters"]["properties"] == {"a": {"type": "number"}}
    assert view.get("codeFindings") in (None, []), "the rules read Python"
    python = await gateway.ask("POST", "/v1/skills", json=NEW | {"language": "python"})
    assert assert_problem(python, 422, "code").detail.startswith("code: it is no Python")
    plain = await gateway.ask("POST", "/v1/skills", json=NEW | {"code": "function run() {}"})
    assert "it exports no function `run`" in assert_problem(plain, 422, "code").detail
    items = (await gateway.ask("GET", "/v1/skills")).json["items"]
    assert [(item["name"], item["language"]) for item in items] == [("report", "typescript")]


async def test_an_execution_in_typescript_becomes_a_skill_of_its_language(gateway: Gateway) -> None:
    gateway.finish_all()
    name = (await gateway.post({"code": CODE, "language": "typescript"})).json["name"]
    new = {"name": "again", "description": "d", "fromExecution": name}
    saved = await gateway.ask("POST", "/v1/skills", json=new)
    assert (saved.status, saved.json["language"]) == (201, "typescript")
    wrong = await gateway.ask("POST", "/v1/skills", json=new | {"language": "python"})
    assert assert_problem(wrong, 422, "language").detail == f"language: execution {name} is in typescript"


async def test_mcp_clients_choose_a_language_only_if_their_pools_have_several(gateway: Gateway) -> None:
    def read(tools: Any) -> tuple[Any, str]:
        (tool,) = [tool for tool in tools.tools if tool.name == "run_code"]
        return tool.input_schema["properties"].get("language"), tool.description

    async with connecting(gateway.url, MODERN) as client:
        argument, description = read(await client.list_tools())
        assert (argument["enum"], argument["default"]) == (["python", "typescript"], "python")
        assert "Python or TypeScript" in description
        gateway.finish_all()
        result = await client.call_tool("run_code", {"code": "1", "language": "typescript"})
        assert not result.is_error
        refused = await client.call_tool("run_code", {"code": "1", "language": "ruby"})
        assert refused.content[0].text.startswith("language: ")
    (execution,) = gateway.executions.values()
    assert (execution["spec"]["poolRef"]["name"], execution["spec"]["language"]) == ("scripts", "typescript")
    async with connecting(gateway.url, MODERN, query="?pool=long") as client:
        argument, description = read(await client.list_tools())
        assert (argument, description) == (None, RUN_CODE.description)
        refused = await client.call_tool("run_code", {"code": "1", "language": "typescript"})
        assert refused.content[0].text == f"language: pool long does not run typescript; {POOLS}"
    async with connecting(gateway.url, MODERN, query="?pool=scripts") as client:
        argument, description = read(await client.list_tools())
        assert argument is None
        assert description.startswith("Run TypeScript in a sandbox")


async def test_mcp_clients_run_a_skill_in_a_pool_of_its_language(gateway: Gateway) -> None:
    gateway.finish_all()
    async with connecting(gateway.url, MODERN) as client:
        given = {"name": "report", "description": "d", "code": CODE, "language": "typescript"}
        saved = await client.call_tool("save_skill", given)
        assert saved.structured_content["import"] == 'import { run } from "skills/report_v1";'
        assert not (await client.call_tool("run_skill", {"name": "report", "arguments": {"a": 1}})).is_error
    (execution,) = gateway.executions.values()
    assert (execution["spec"]["poolRef"]["name"], execution["spec"]["language"]) == ("scripts", "typescript")


async def test_the_command_takes_the_language_from_a_files_ending(
    gateway: Gateway, command: Command, tmp_path: Path
) -> None:
    async def run(*arguments: object) -> Any:
        before = set(gateway.executions)
        ended = await command("run", *arguments, "-d")
        assert ended.code == 0, ended.err
        (new,) = set(gateway.executions) - before
        spec = gateway.executions[new]["spec"]
        return spec["poolRef"]["name"], spec.get("language")

    for name in ("a.ts", "a.py"):
        (tmp_path / name).write_text("1")
    assert await run(tmp_path / "a.ts") == ("scripts", "typescript")
    assert await run(tmp_path / "a.py") == ("default", None)
    assert await run("-c", "1", "--language", "typescript") == ("scripts", "typescript")
    assert await run(tmp_path / "a.ts", "--language", "python") == ("default", "python")
    refused = await command("run", tmp_path / "a.py", "--pool", "scripts")
    assert (refused.code, "pool scripts does not run python" in refused.err) == (3, True)
    assert [line.split()[:2] for line in (await command("pools")).lines[1:]] == [
        ["default", "python"],
        ["long", "python"],
        ["scripts", "typescript"],
    ]


async def test_the_command_saves_and_exports_a_folder_in_typescript(
    gateway: Gateway, command: Command, tmp_path: Path
) -> None:
    folder = SkillFolder(name="report", description="d", code=CODE, language="typescript")
    for path, text in folder.to_files().items():
        target = tmp_path / "report" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    assert (await command("skills", "save", tmp_path / "report")).out == "report-v1 is a draft\n"
    assert "has this content already" in (await command("skills", "save", tmp_path / "report")).out
    exported = await command("skills", "export", "report-v1", "--to", tmp_path / "out")
    assert (tmp_path / "out" / "report" / "scripts" / "run.ts").read_text() == CODE, exported.err
