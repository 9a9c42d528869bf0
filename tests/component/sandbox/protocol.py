"""One use of two sandboxes and of a broker, as all messages of their protocol occur in it; and its record.

    python -m tests.component.sandbox.protocol FILE

writes the record of this tree. Tests hold the next release to the records of those that it has to understand.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.component.broker.conftest import World, grant, running
from tests.component.broker.files_client import OWNER, files_grant
from tests.component.broker.servers import serving, toolbox
from tests.component.sandbox.conftest import SandboxProcess
from tests.support.api_server import FakeApiServer
from tests.support.constants import SANDBOX_KEY
from tests.support.exchanges import Names, Object, recording
from tests.support.pace import paced

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.files import WorkspaceMode, WorkspaceRef
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import (
    EndEvent,
    Event,
    InterpreterLost,
    Job,
    JobFiles,
    JobSkill,
    JobSkills,
    JobTools,
    SandboxUsed,
)
from mcp_exec_common.supervisor.tokens import supervisor_token, token_digest
from mcp_exec_operator.core.pods.manifest import IsolationAddresses, PodIdentity, PoolIdentity, build_pod
from mcp_exec_sandbox.sdk import client

NAMESPACE = "agents"
PEERS = ("used", "session")
"""Names of the sandboxes, which are those of their pods."""
BROKER, GRANT, FILES_GRANT = "http://BROKER", "THE-GRANT", "THE-FILES-GRANT"
SECONDS = paced(20.0)

CODE = """
import sys
from client import call_mcp_tool
from servers.box import add, fail
from skills import save_skill, search_skills
from skills.totals import run as total
progress(1, 2, "half")
print(await add(a=context["n"], b=3), await call_mcp_tool("mcp__box__echo", {"value": {"rows": [1, None]}}))
try:
    await fail()
except Exception as error:
    print(type(error).__name__, file=sys.stderr)
show("shown", "note.txt")
open("kept.txt", "w").write("kept")
save_skill("twice", "def run(x): return 2 * x", "Doubles.", tools=["box.add"], tags=["t"])
{"total": total([1, 2]), "names": [each["name"] for each in search_skills("total")], "keys": {1: "a", "1": "b"}}
"""
WAIT = "import time\nprint('waiting', flush=True)\ntime.sleep(60)\n"


def token_of(peer: str) -> str:
    """Return the token of a sandbox."""
    return supervisor_token(key=SANDBOX_KEY, namespace=NAMESPACE, pod=peer)


def start_sandboxes() -> dict[str, SandboxProcess]:
    """Start both sandboxes."""
    return {peer: SandboxProcess(token_sha256=token_digest(token_of(peer))) for peer in PEERS}


def find_url(sandbox: SandboxProcess) -> str:
    """Return the URL of a sandbox once it is ready."""
    assert sandbox.client
    return f"http://127.0.0.1:{sandbox.ready['port']}"


def name_texts(broker: str) -> Names:
    """Return the texts that differ between two runs, for a broker of this URL."""
    return Names({BROKER: broker, GRANT: grant(), FILES_GRANT: files_grant()})


@asynccontextmanager
async def serving_broker(folder: Path) -> AsyncIterator[World]:
    """Run the broker with the ToolServer `box`."""
    async with (
        FakeApiServer().running() as api,
        running(api, folder, files_folder=folder / "files") as world,
        serving(box := toolbox()),
    ):
        world.add("box", url=box.url)
        await world.listed("box")
        yield world


@asynccontextmanager
async def connecting(urls: dict[str, str]) -> AsyncIterator[dict[str, SupervisorConnection]]:
    """Connect the operator's client to the sandboxes at these URLs."""
    async with AsyncExitStack() as stack:
        found = {}
        for peer, url in urls.items():
            port = int(url.rpartition(":")[2])
            supervisors = await stack.enter_async_context(
                SupervisorClient.connect(keys=SandboxKeys(SANDBOX_KEY), port=port)
            )
            found[peer] = supervisors.get_connection(namespace=NAMESPACE, pod=peer, address="127.0.0.1")
        yield found


def _job(uid: str, code: str, **fields: Any) -> Job:
    given: Object = {"context": {"n": 2}, "timeout_seconds": 15, "output_bytes": 65536, "owner": OWNER}
    return Job(id=uid, code=code, **(given | fields))


async def _run(sandbox: SupervisorConnection, job: Job) -> list[Event]:
    return [event async for event in sandbox.run(job, timeout_seconds=SECONDS)]


def _end(events: list[Event]) -> EndEvent:
    assert isinstance(events[-1], EndEvent)
    return events[-1]


async def use(sandboxes: dict[str, SupervisorConnection], wrappers: bytes, names: Names) -> None:
    """Use the sandboxes in all ways that an operator and a gateway do, and check what they answer."""
    used, session = sandboxes["used"], sandboxes["session"]
    assert await used.get_wrappers_hash() is None
    assert (await used.get_libraries(timeout_seconds=SECONDS)).python
    await used.put_wrappers(wrappers, timeout_seconds=SECONDS)
    tools = JobTools(
        url=names.texts[BROKER], token=names.texts[GRANT], allow=["box.*"], wrappers=json.loads(wrappers)["hash"]
    )
    files = JobFiles(
        url=names.texts[BROKER],
        token=names.texts[FILES_GRANT],
        workspace=WorkspaceRef(name="data", mode=WorkspaceMode.WRITE),
        max_artifacts=3,
        max_artifact_bytes=10_000,
    )
    skills = JobSkills(
        sources={"totals-v1": JobSkill(code="def run(rows): return sum(rows)", tools=[])},
        modules={"totals": "totals-v1"},
        catalog=[{"name": "totals", "description": "Add up the total.", "inputSchema": {"type": "object"}}],
    )
    hints = {"pandas": [["data", "2.3.1"]]}
    events = await _run(used, _job("uid-1", CODE, tools=tools, files=files, skills=skills, libraries=hints))
    end = _end(events)
    assert (end.phase, end.error) == (Phase.SUCCEEDED, None), end
    assert {each.type for each in events} == {
        *("status", "stdout", "stderr", "result", "tool_call", "tool_result", "progress", "artifact", "skill", "end")
    }
    assert end.workspace is not None
    assert end.workspace.version == 1
    assert [note.kind for note in end.notes]
    assert await used.get_execution() == ("finished", "uid-1")
    later = [each async for each in used.follow_events("uid-1", from_seq=2, timeout_seconds=SECONDS)]
    assert [each.seq for each in later] == [each.seq for each in events[1:]]
    with pytest.raises(SandboxUsed, match="uid-1"):
        await _run(used, _job("uid-2", "1", owner=None))
    assert await used.recycle("uid-1") == 1
    assert _end(await _run(used, _job("uid-3", "1 / 0"))).error is not None
    assert await used.recycle("uid-3") == 2
    assert _end(await _run(used, _job("uid-4", WAIT, timeout_seconds=3))).phase is Phase.TIMED_OUT
    assert (await used.get_use()).uses == 3
    await _use_session(session)


async def _use_session(session: SupervisorConnection) -> None:
    assert (await session.get_execution())[0] == "idle"
    assert _end(await _run(session, _job("uid-1", "x = 1", session=True))).phase is Phase.SUCCEEDED
    assert (await session.get_session()).alive
    events = session.run(_job("uid-2", WAIT, session=True), timeout_seconds=SECONDS)
    async for event in events:
        if event.type == "stdout":
            await session.extend("uid-2", 5)
            await session.cancel("uid-2", timeout_seconds=SECONDS)
        last = event
    assert isinstance(last, EndEvent)
    assert last.phase is Phase.CANCELLED
    assert _end(await _run(session, _job("uid-3", "import os\nos._exit(3)", session=True))).exit_code == 3
    with pytest.raises(InterpreterLost):
        await _run(session, _job("uid-4", "x", session=True))


def build_environment() -> dict[str, str]:
    """Return the variables of a sandbox whose pool has all settings."""
    spec = SandboxPoolSpec.model_validate({"image": "sandbox", "preimport": ["json"], "logOutput": True})
    made = build_pod(
        spec=spec,
        pool=PoolIdentity(namespace=NAMESPACE, name="default", uid="1"),
        pod=PodIdentity(name="used", token_sha256=token_digest(token_of("used")), uid=100_000),
        template_hash="",
        isolation=IsolationAddresses(forbidden=("192.0.2.1:443",), answering="192.0.2.2:8081"),
    )
    return {each["name"]: each["value"] for each in made.body["spec"]["containers"][0]["env"]}


async def record(folder: Path) -> Object:
    """Return the exchanges with sandboxes and with the broker of this tree."""
    sandboxes = start_sandboxes()
    exchanges: list[Object] = []
    try:
        async with serving_broker(folder) as world, AsyncExitStack() as stack:
            names = Names()
            broker = await stack.enter_async_context(recording(world.url, "broker", exchanges, names))
            names.texts |= name_texts(broker).texts
            urls = {
                peer: await stack.enter_async_context(recording(find_url(each), peer, exchanges, names))
                for peer, each in sandboxes.items()
            }
            _, wrappers = await world.ask("GET", f"/v1/namespaces/{NAMESPACE}/wrappers")
            connections = await stack.enter_async_context(connecting(urls))
            await use(connections, json.dumps(wrappers).encode(), names)
    finally:
        for each in sandboxes.values():
            each.close()
    for exchange in exchanges:
        if exchange["path"] == "/v1/libraries":  # those of the tree's virtual environment
            answer = json.loads(exchange["answer"])
            exchange["answer"] = json.dumps(answer | {"libraries": answer["libraries"][:1]})
    return {
        "client": sorted(client.__all__),
        "environment": build_environment(),
        "sandbox": [each for each in exchanges if each["peer"] != "broker"],
        "broker": [each for each in exchanges if each["peer"] == "broker"],
    }


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        written = json.dumps(asyncio.run(record(Path(temporary))), indent=1, ensure_ascii=False)
    Path(sys.argv[1]).write_text(written + "\n")
