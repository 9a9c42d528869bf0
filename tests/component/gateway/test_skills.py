"""Skills at the gateway: saved, seen, reviewed, exported, deleted, searched; and what is refused to whom."""

import asyncio
import base64
import io
import json
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.conftest import CEX, KEY, SECRETS, Answer, Gateway, key_entry, keys_secret, serving
from tests.component.gateway.mcp_client import MODERN, connecting
from tests.support.api_server import FakeApiServer
from tests.support.constants import SANDBOX_KEY
from tests.support.until import until

from mcp_exec_api.constants import LABEL_CALLER, SKILLS
from mcp_exec_api.meta import now
from mcp_exec_api.skill import SkillSpec, content_digest
from mcp_exec_client import AsyncClient
from mcp_exec_client.agent import describe_execution
from mcp_exec_client.cli.main import main
from mcp_exec_client.errors import NotFound
from mcp_exec_client.events import EndEvent
from mcp_exec_client.state.skills import read_members
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_proofs import build_shipped
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.skills.folder import SkillFolder, build_archive
from mcp_exec_gateway.features.skills.service import MAX_DRAFTS, SkillService
from mcp_exec_gateway.features.tools.service import Tools

Object = dict[str, Any]
SKL = custom_resource_path(SKILLS, namespace="agents")
BOB, ANN, LIMITED = (f"mcpx_{letter * 43}" for letter in "bcd")
CODE = "def run(a: int):\n    return a\n"
FOLDER = SkillFolder(name="from-folder", description="d", code=CODE, instructions="How.")
NEW = {"name": "report", "description": "Make a report.", "code": CODE}


@pytest.fixture
async def gateway(api: FakeApiServer) -> AsyncIterator[Gateway]:
    entries = {"team-a": key_entry(KEY), "bob": key_entry(BOB), "ann": {**key_entry(ANN), "approver": True}}
    api.put(SECRETS, keys_secret(**entries, limited=key_entry(LIMITED, tools=["github.*"])))
    async with serving(api) as made:
        yield made


async def test_a_decision_whose_key_was_withdrawn_is_not_shown_any_more(gateway: Gateway) -> None:
    skill = await save(gateway)
    assert (await approve(gateway, skill)).json["state"] == "Approved"
    path = f"/v1/skills/report/versions/{skill['version']}"
    gateway.dependencies.supervisors.keys.replace((b"the key after the leak",))
    await until(lambda: gateway.dependencies.get(SkillService).cache.list_newest("agents") == [])
    assert (await gateway.ask("GET", path, key=BOB)).status == 404
    shown = await gateway.ask("GET", f"{path}?asApprover=true", key=ANN)
    assert (shown.json["state"], shown.json["author"][:8]) == ("Draft", "claimed:")


async def save(gateway: Gateway, *, key: str = KEY, **fields: Any) -> Object:
    answer = await gateway.ask("POST", "/v1/skills", json={**NEW, **fields}, key=key)
    assert answer.status == 201, answer.text
    view: Object = answer.json
    return view


async def approve(gateway: Gateway, skill: Object, **options: Any) -> Answer:
    """Approve a version as its view shows it, by ANN unless another key is given."""
    path = f"/v1/skills/{skill['name']}/versions/{skill['version']}/approve"
    return await gateway.ask("POST", path, **{"json": {"digest": skill["digest"]}, "key": ANN, **options})


async def names(gateway: Gateway, query: str = "", **options: Any) -> list[str]:
    answer = await gateway.ask("GET", f"/v1/skills{query}", **options)
    assert answer.status == 200, answer.text
    return [f"{item['name']}-v{item['version']}" for item in answer.json["items"]]


async def test_a_saved_skill_is_a_draft_of_its_caller_with_a_proof(gateway: Gateway) -> None:
    view = await save(gateway, tags=["weekly"], user="u1", instructions="# How")
    shown = {name: view[name] for name in ("name", "version", "state", "author", "user", "import")}
    assert shown == {
        "name": "report",
        "version": 1,
        "state": "Draft",
        "author": "team-a",
        "user": "u1",
        "import": "from skills.report_v1 import run",
    }
    assert view["parameters"]["properties"] == {"a": {"type": "integer"}}
    assert view["provenance"]["source"] == "Code"
    stored = gateway.api.collections[SKL]["report-v1"]
    assert (
        Attestor(keys=SandboxKeys(SANDBOX_KEY))
        .read_author(stored | {"metadata": {**stored["metadata"]}})
        .endswith("team-a")
    )
    assert (await save(gateway))["version"] == 2
    one = await gateway.ask("GET", "/v1/skills/report/versions/1")
    assert (one.json["code"], one.json["instructions"]) == (CODE, "# How")


async def test_others_see_a_version_once_it_is_approved_by_an_approver(gateway: Gateway) -> None:
    view = await save(gateway)
    path = "/v1/skills/report/versions/1"
    assert await names(gateway, key=BOB) == []
    assert (await gateway.ask("GET", path, key=BOB)).status == 404
    assert (await approve(gateway, view, key=BOB)).status == 403
    assert (await gateway.ask("GET", "/v1/skills?asApprover=true", key=BOB)).status == 403
    assert await names(gateway, "?asApprover=true", key=ANN) == ["report-v1"]
    assert (await gateway.ask("GET", f"{path}?asApprover=true", key=ANN)).json["code"] == CODE
    other = await gateway.ask("POST", f"{path}/approve", json={"digest": "sha256:other"}, key=ANN)
    assert other.status == 409
    answer = await gateway.ask("POST", f"{path}/approve", json={"digest": view["digest"], "comment": "read"}, key=ANN)
    assert (answer.status, answer.json["state"], answer.json["reviewedBy"]) == (200, "Approved", "ann")
    assert await names(gateway, key=BOB) == ["report-v1"]
    stored = gateway.api.collections[SKL]["report-v1"]
    attestor, digest = Attestor(keys=SandboxKeys(SANDBOX_KEY)), content_digest(stored["spec"])
    assert attestor.is_proven_review(stored["spec"]["review"], uid=stored["metadata"]["uid"], digest=digest)
    deprecated = await gateway.ask("POST", f"{path}/deprecate", json={}, key=ANN)
    assert deprecated.json["state"] == "Deprecated"
    assert await names(gateway, "?state=Approved", key=BOB) == []


async def test_the_versions_of_a_skill_are_listed_without_drafts_of_others(gateway: Gateway) -> None:
    _, second, _ = [await save(gateway) for _ in range(3)]
    await save(gateway, name="reports")
    path = "/v1/skills/report/versions"
    await approve(gateway, second)
    gateway.api.merge(SKL, "report-v2", {"status": {"uses": 4, "successes": 3, "state": "Approved"}})
    await until(lambda: gateway.dependencies.get(SkillService).cache.list_all("agents")[1]["status"].get("uses") == 4)
    mine = (await gateway.ask("GET", path)).json["items"]
    assert [(each["version"], each["state"]) for each in mine] == [(3, "Draft"), (2, "Approved"), (1, "Draft")]
    (seen,) = (await gateway.ask("GET", path, key=BOB)).json["items"]
    assert (seen["version"], seen["uses"], seen["successes"]) == (2, 4, 3)
    assert (seen["reviewedBy"], seen["provenance"]["source"]) == ("ann", "Code")
    assert "code" not in seen
    assert len((await gateway.ask("GET", f"{path}?asApprover=true", key=ANN)).json["items"]) == 3
    assert (await gateway.ask("GET", f"{path}?asApprover=true", key=BOB)).status == 403
    missing = [await gateway.ask("GET", f"/v1/skills/{name}/versions", key=BOB) for name in ("reports", "absent")]
    assert [answer.status for answer in missing] == [404, 404]
    assert missing[0].json["detail"].replace("reports", "absent") == missing[1].json["detail"]


async def test_a_draft_that_replaced_the_one_that_was_read_is_not_approved(gateway: Gateway) -> None:
    read = await save(gateway)
    assert (await gateway.ask("DELETE", "/v1/skills/report/versions/1")).status == 204
    assert (await save(gateway, code="def run(a: int):\n    return evil(a)\n"))["version"] == 1
    replaced = await approve(gateway, read)
    assert (replaced.status, "has another content" in replaced.json["detail"]) == (409, True)
    blind = await approve(gateway, read, json={"comment": "it was fine yesterday"})
    assert (blind.status, blind.json["errors"][0]["field"]) == (422, "digest")
    assert await names(gateway, key=BOB) == []


async def test_an_approver_approves_no_skill_of_their_own(gateway: Gateway) -> None:
    view = await save(gateway, key=ANN)
    path = "/v1/skills/report/versions/1"
    refused = await approve(gateway, view)
    assert (refused.status, refused.json["detail"]) == (
        403,
        "ann saved report-v1, so another approver must approve it "
        "(the chart's value skills.selfApproval lifts this rule)",
    )
    assert (await gateway.ask("GET", path, key=ANN)).json["state"] == "Draft"
    assert (await gateway.ask("POST", f"{path}/deprecate", json={}, key=ANN)).json["state"] == "Deprecated"


@pytest.mark.parametrize("labels", [{}, {LABEL_CALLER: "bob"}, {LABEL_CALLER: "ann"}])
async def test_nobody_approves_a_skill_whose_author_is_not_proven(gateway: Gateway, labels: dict[str, str]) -> None:
    spec = SkillSpec.model_validate({**NEW, "version": 1})
    manifest = {"metadata": {"name": "report-v1", "namespace": "agents", "labels": labels}, "spec": spec.to_api()}
    gateway.api.put(SKL, manifest)
    await until(lambda: gateway.dependencies.get(SkillService).cache.list_all("agents"))
    refused = await approve(gateway, {**NEW, "version": 1, "digest": content_digest(manifest["spec"])})
    assert refused.status == 403
    assert "nobody knows who wrote report-v1, so nobody may approve it: save it through the gateway" in refused.text


async def test_approvers_approve_their_own_skills_if_the_installation_allows_it(api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(ann={**key_entry(KEY), "approver": True}))
    async with serving(api, skill_self_approval=True) as gateway:
        approved = await approve(gateway, await save(gateway), key=KEY)
    assert (approved.status, approved.json["state"]) == (200, "Approved")


async def test_skills_of_the_release_are_approved_and_belong_to_no_caller(gateway: Gateway) -> None:
    spec = SkillSpec.model_validate({**NEW, "version": 1})
    shipped = build_shipped(spec, namespace="agents", attestor=Attestor(keys=SandboxKeys(SANDBOX_KEY)), moment=now())
    gateway.api.put(SKL, shipped)
    await until(lambda: gateway.dependencies.get(SkillService).cache.list_all("agents"))
    (seen,) = (await gateway.ask("GET", "/v1/skills", key=BOB)).json["items"]
    assert (seen["state"], seen["author"]) == ("Approved", "release:mcp-exec")
    path = "/v1/skills/report/versions/1"
    assert (await gateway.ask("DELETE", path, key=BOB)).status == 403
    assert (await gateway.ask("POST", f"{path}/deprecate", json={}, key=ANN)).json["state"] == "Deprecated"


async def test_the_end_of_a_run_shows_the_skills_that_it_saved(gateway: Gateway) -> None:
    saved = {"used": ["chart-v1"], "saved": ["report-v1"], "refused": ["Bad_: name: it must be lower-case"]}
    gateway.finish_all(skills=saved)
    async with AsyncClient(gateway.url, api_key=KEY) as client:
        done = await client.run("1")
        assert done.skills is not None
        assert done.skills.saved == ["report-v1"]
        end = [event async for event in client.stream(done.name)][-1]
        assert isinstance(end, EndEvent)
        assert end.skills == done.skills
    assert json.loads(describe_execution(done))["skills"] == {name: saved[name] for name in ("saved", "refused")}
    async with connecting(gateway.url, MODERN) as client:
        ran = await client.call_tool("run_code", {"code": "1"})
    assert ran.structured_content["skills"] == saved
    assert "skills:\n- report-v1 was saved as a draft\n- not saved: Bad_: name" in ran.content[0].text


async def test_a_review_that_somebody_writes_by_kubectl_approves_nothing(gateway: Gateway) -> None:
    await save(gateway)
    forged = {"decision": "Approve", "by": "ann", "at": "2026-11-23T10:00:00.000000Z", "proof": "0" * 64}
    gateway.api.merge(SKL, "report-v1", {"spec": {"review": forged}})
    assert (await gateway.ask("GET", "/v1/skills/report/versions/1", key=BOB)).status == 404


async def test_only_its_author_or_an_approver_deletes_a_draft(gateway: Gateway) -> None:
    await save(gateway)
    await save(gateway)
    for number, key, status in ((1, BOB, 404), (1, KEY, 204), (1, KEY, 404), (2, ANN, 204)):
        answer = await gateway.ask("DELETE", f"/v1/skills/report/versions/{number}", key=key)
        assert answer.status == status, answer.text
    await approve(gateway, await save(gateway))
    refused = await gateway.ask("DELETE", "/v1/skills/report/versions/1")
    assert refused.status == 403
    assert "version 1 is Approved: authors delete only their drafts; the API key" in refused.json["detail"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"code": None}, "code"),
        ({"fromExecution": "x"}, "code"),
        ({"code": "x = 1"}, "code"),
        ({"name": "Bad"}, "name"),
        ({"name": None}, "name"),
        ({"description": "a\nb"}, "description"),
        ({"other": 1}, "other"),
        ({"code": None, "archive": "%%"}, "archive"),
        ({"code": None, "archive": base64.b64encode(b"no tar").decode()}, "archive"),
    ],
)
async def test_a_bad_skill_is_refused_by_the_name_of_its_field(gateway: Gateway, fields: Object, field: str) -> None:
    given = {name: value for name, value in {**NEW, **fields}.items() if value is not None}
    answer = await gateway.ask("POST", "/v1/skills", json=given)
    assert answer.status == 422, answer.text
    assert answer.json["errors"][0]["field"] == field


async def test_a_caller_saves_only_what_needs_its_own_tools(gateway: Gateway) -> None:
    refused = await gateway.ask("POST", "/v1/skills", json={**NEW, "tools": ["slack.send"]}, key=LIMITED)
    assert (refused.status, refused.json["errors"][0]["field"]) == (403, "tools.0")
    assert (await save(gateway, key=LIMITED, tools=["github.list_issues"]))["tools"] == ["github.list_issues"]


async def test_a_successful_execution_of_the_caller_becomes_a_skill(gateway: Gateway) -> None:
    gateway.finish_all(toolCalls={"byTool": {"github.list_issues": 2, "other": 1}})
    body = {"code": "total = sum(rows)\ntotal", "context": {"rows": [1]}, "name": "done", "user": "u1"}
    assert (await gateway.post(body)).status == 200
    given = {"name": "total", "description": "Sum rows.", "fromExecution": "done"}
    view = (await gateway.ask("POST", "/v1/skills", json=given)).json
    stored = gateway.executions["done"]["metadata"]
    assert view["provenance"]["execution"] == "done"
    assert view["provenance"]["executionUid"] == stored["uid"]
    assert (view["tools"], view["user"]) == (["github.list_issues"], "u1")
    assert view["parameters"]["required"] == ["rows"]
    assert (await gateway.ask("POST", "/v1/skills", json=given, key=BOB)).status == 403
    gateway.api.merge(CEX, "done", {"status": {"phase": "Failed"}})
    failed = await gateway.ask("POST", "/v1/skills", json=given)
    assert "it must have Succeeded" in failed.json["detail"]


async def test_a_folder_comes_in_and_goes_out_as_an_archive(gateway: Gateway) -> None:
    folder = SkillFolder(name="report", description="d", code=CODE, instructions="\n# How\n", tags=["a"])
    archive = build_archive(folder, version=1)
    answer = await gateway.ask("POST", "/v1/skills", json={"archive": base64.b64encode(archive).decode()})
    assert (answer.status, answer.json["provenance"]["source"]) == (201, "Folder")
    async with gateway.request("GET", "/v1/skills/report/versions/1/archive") as response:
        assert response.headers["content-type"] == "application/x-tar"
        data = await response.read()
    assert data == archive
    with tarfile.open(fileobj=io.BytesIO(data)) as members:
        assert members.getnames() == ["report/SKILL.md", "report/scripts/run.py"]


async def test_searches_find_skills_by_what_they_do_and_beside_tools(gateway: Gateway) -> None:
    await approve(gateway, await save(gateway, name="deduplicate", description="Remove duplicate rows from a table."))
    await approve(gateway, await save(gateway, name="chart", description="Draw a chart."))
    assert (await names(gateway, "?query=duplicates", key=BOB))[0] == "deduplicate-v1"
    gateway.dependencies.get(Tools).catalogs.expire()
    tools = await gateway.ask("GET", "/api/v1/mcp/tools/search?query=duplicate+rows&detail_level=with_description")
    assert tools.json[0]["kind"] == "skill"
    assert tools.json[0]["import"] == "from skills.deduplicate import run"


async def test_mcp_clients_save_find_and_run_skills(gateway: Gateway) -> None:
    gateway.finish_all()
    async with connecting(gateway.url, MODERN) as client:
        saved = await client.call_tool("save_skill", {**NEW, "description": "Make a weekly report."})
        assert saved.structured_content["import"] == "from skills.report_v1 import run"
        bad = await client.call_tool("save_skill", {**NEW, "code": "x = 1"})
        assert bad.is_error
        assert "no function `run`" in bad.content[0].text
        await approve(gateway, (await gateway.ask("GET", "/v1/skills/report/versions/1")).json)
        gateway.dependencies.get(Tools).catalogs.expire()
        found = await client.call_tool("search_tools", {"query": "weekly report"})
        assert found.structured_content["tools"][0]["kind"] == "skill"
        ran = await client.call_tool("run_skill", {"name": "report", "version": 1, "arguments": {"a": 2}})
        assert ran.structured_content["phase"] == "Succeeded"
        execution = gateway.executions[ran.structured_content["execution"]]
        assert execution["spec"]["skillRef"] == {"name": "report", "version": 1}
        assert execution["spec"]["context"] == {"a": 2}
        saved = await client.call_tool("save_skill", {"name": "b", "description": "d", "execution": "missing"})
        assert "there is no execution missing" in saved.content[0].text
        for arguments in ({}, {"name": "report", "code": "1"}, {"name": "report", "arguments": 1}):
            assert (await client.call_tool("run_skill", arguments)).is_error
        count = len(gateway.executions)
        for arguments, said in (
            ({"name": "repord"}, "name: there is no skill 'repord'; did you mean report?"),
            ({"name": "nope"}, "name: there is no skill 'nope'; search_tools finds skills"),
            ({"name": "report", "version": 7}, "version: skill report has no version 7, only 1"),
            ({"name": "report", "version": "x"}, "version: "),
            ({"name": "report", "timeout": 10**9}, "timeout: "),
        ):
            refused = await client.call_tool("run_skill", arguments)
            assert (refused.is_error, refused.content[0].text.startswith(said)) == (True, True), refused.content
        assert len(gateway.executions) == count
        empty = await client.call_tool("run_code", {"code": ""})
        assert empty.content[0].text == "code is missing: send the code to run"
        forged = await client.call_tool("run_code", {"skill": {"name": "report"}, "code": "1"})
        assert "unknown arguments: skill" in forged.content[0].text


async def test_a_caller_has_no_more_drafts_than_allowed_also_by_saves_at_the_same_time(gateway: Gateway) -> None:
    asked = [
        gateway.ask("POST", "/v1/skills", json={**NEW, "name": f"report-{number}"}) for number in range(MAX_DRAFTS + 20)
    ]
    statuses = [answer.status for answer in await asyncio.gather(*asked)]
    assert (statuses.count(201), statuses.count(429)) == (MAX_DRAFTS, 20)
    assert (
        await gateway.ask("DELETE", "/v1/skills/" + (await names(gateway))[0].replace("-v", "/versions/"))
    ).status == 204
    await save(gateway)


async def test_two_saves_at_once_become_two_versions(gateway: Gateway) -> None:
    views = await asyncio.gather(*(save(gateway) for _ in range(3)))
    assert sorted(view["version"] for view in views) == [1, 2, 3]


async def test_an_execution_runs_a_skill_by_reference(gateway: Gateway) -> None:
    gateway.finish_all()
    answer = await gateway.post({"skillRef": {"name": "report"}, "context": {"a": 1}})
    assert answer.status == 200, answer.text
    (execution,) = gateway.executions.values()
    assert execution["spec"]["skillRef"] == {"name": "report"}
    assert Attestor(keys=SandboxKeys(SANDBOX_KEY)).sign_caller(execution)
    both = await gateway.post({"skillRef": {"name": "report"}, "code": "1"})
    assert (both.status, both.json["errors"][0]["field"]) == (422, "code")
    await until(lambda: gateway.executions)


async def test_the_client_saves_reviews_runs_and_exports(gateway: Gateway, tmp_path: Path) -> None:
    gateway.finish_all()
    for path, text in FOLDER.to_files().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    async with AsyncClient(gateway.url, api_key=KEY) as client, AsyncClient(gateway.url, api_key=ANN) as approver:
        saved = await client.skills.save("report", "Make a report.", code=CODE, tags=["weekly"])
        assert (saved.version, saved.state, saved.import_line) == (1, "Draft", "from skills.report_v1 import run")
        assert (await client.skills.save_folder(tmp_path)).name == "from-folder"
        assert [skill.name for skill in await approver.skills.list(as_approver=True)] == ["from-folder", "report"]
        finding = {"rule": "Subprocess", "severity": "High", "line": 1, "message": "starts a program"}
        gateway.api.merge(SKL, "report-v1", {"status": {"codeFindings": [finding]}})
        await until(
            lambda: gateway.dependencies.get(SkillService).cache.list_all("agents")[1]["status"].get("codeFindings")
        )
        (found,) = (await approver.skills.get("report", 1, as_approver=True)).code_findings
        assert str(found) == "line 1: starts a program (Subprocess)"
        assert (await approver.skills.approve("report", 1, digest=saved.digest)).reviewed_by == "ann"
        assert (await client.skills.get("report", 1)).code == CODE
        assert next(iter(await client.skills.list("weekly report"))).name == "report"
        assert [skill.version for skill in await client.skills.versions("report")] == [1]
        done = await client.skills.run("report", {"a": 1}, version=1)
        assert gateway.executions[done.name]["spec"]["skillRef"] == {"name": "report", "version": 1}
        assert sorted(read_members(await client.skills.export("report", 1))) == ["SKILL.md", "scripts/run.py"]
        assert (await approver.skills.deprecate("report", 1)).state == "Deprecated"
        await client.skills.delete("from-folder", 1)
        with pytest.raises(NotFound):
            await client.skills.get("from-folder", 1)


async def test_folders_of_skills_go_into_a_repository_and_come_back_without_new_versions(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def command(*words: str) -> list[str]:
        await asyncio.to_thread(main, ["skills", *words, "--gateway", gateway.url, "--api-key", KEY])
        return capsys.readouterr().out.splitlines()

    for name in ("report", "chart", "draft"):
        for version in (1, 2):
            view = await save(gateway, name=name, description=f"The {name}, number {version}.", instructions="# How\n")
            if name != "draft":
                await approve(gateway, view)
    names = ["chart", "report"]
    assert await command("export", "--approved", "--to", str(tmp_path)) == [str(tmp_path / name) for name in names]
    assert sorted(os.listdir(tmp_path)) == names
    folders = [str(tmp_path / name) for name in names]
    same = [f"{name}-v2 has this content already, and is Approved" for name in names]
    assert await command("save", *folders) == same
    (tmp_path / "report" / "scripts" / "run.py").write_bytes(b"def run():\r\n    return 3\r\n")
    assert await command("save", *folders) == [same[0], "report-v3 is a draft"]
    assert await command("save", *folders) == [same[0], "report-v3 has this content already, and is Draft"]
    for words in (("export",), ("export", "report-v1", "--approved")):
        with pytest.raises(SystemExit):
            await command(*words)
        assert "give versions, or --approved" in capsys.readouterr().err


async def test_the_command_saves_reviews_shows_exports_and_runs(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.finish_all()
    for path, text in FOLDER.to_files().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)

    async def command(*words: str, key: str = KEY) -> str:
        await asyncio.to_thread(main, ["skills", *words, "--gateway", gateway.url, "--api-key", key])
        return capsys.readouterr().out

    assert "from-folder-v1 is a draft" in await command("save", str(tmp_path))
    assert "Draft" in await command("list")
    assert "Folder" in await command("versions", "from-folder")
    finding = {"rule": "Subprocess", "severity": "High", "line": 1, "message": "starts a program"}
    gateway.api.merge(SKL, "from-folder-v1", {"status": {"codeFindings": [finding]}})
    await until(
        lambda: gateway.dependencies.get(SkillService).cache.list_all("agents")[0]["status"].get("codeFindings")
    )
    shown = await command("show", "from-folder-v1", "--as-approver", key=ANN)
    assert "finding: line 1: starts a program (Subprocess)\n" in shown
    digest = shown.partition("digest: ")[2].splitlines()[0]
    approve = ("approve", "from-folder-v1", "--comment", "read", "--digest")
    with pytest.raises(SystemExit):
        await command(*approve, digest[:-1], key=ANN)
    assert "has another content" in capsys.readouterr().err
    assert "from-folder-v1 is Approved" in await command(*approve, digest, key=ANN)
    assert "def run" in await command("show", "from-folder", key=BOB)
    assert "from-folder-v1" in await command("search", "anything d", "-o", "name")
    await command("export", "from-folder-v1", "--to", str(tmp_path / "out"))
    assert (tmp_path / "out" / "from-folder" / "scripts" / "run.py").read_text() == CODE
    assert await command("run", "from-folder", "--arguments", '{"a": 1}') == "1\n"
    assert "from-folder-v1 is Deprecated" in await command("deprecate", "from-folder-v1", key=ANN)
    assert "from-folder-v1 is deleted" in await command("delete", "from-folder-v1", key=ANN)
    for words, problem in (
        (("approve", "report", "--digest", digest), "names no version"),
        (("approve", "report-v1"), "--digest"),
        (("run", "x", "--arguments", "{"), "is not JSON"),
        (("save",), "give folders"),
        (("save", str(tmp_path / "nowhere")), "No such file"),
    ):
        with pytest.raises(SystemExit):
            await command(*words)
        assert problem in capsys.readouterr().err
