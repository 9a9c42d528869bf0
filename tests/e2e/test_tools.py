"""Code in sandboxes calls real MCP servers through the broker: what works, what is refused, and what breaks."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_exec_client.__main__ import main as mcp_exec
from mcp_exec_client.cli.main import kubectl_main
from tests.e2e import toolservers
from tests.e2e.support import NAMESPACE, RELEASE, ROOT, SYSTEM, Cluster, Gateway, MakePool
from tests.e2e.toolservers import Agent, http_server, running, secret, statuses, stdio, tool_server
from tests.support.model_servers.messages_api import KEY as MODEL_KEY
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.script import results_in, says, uses
from tests.support.pace import paced
from tests.support.pages import steps
from tests.support.until import eventually

pytestmark = pytest.mark.timeout(900)
EXAMPLES = ROOT / "examples" / "tools"
TOOLS = {"filesystem": 14, "everything": 13, "memory": 9, "git": 12, "time": 2, "sheets": 3, "trips": 5, "slack": 3}
"""How many tools each stdio server has."""
GIT = "[ -d /data/repo/.git ] || git init -q /data/repo; exec python3 -m mcp_server_git --repository /data/repo"
DEMO = "mcp_exec_servers"
BROKER = f"{RELEASE}-broker"


def manifests(runtime: str | None) -> list[dict[str, Any]]:
    """The stdio servers, in pods of that RuntimeClass."""
    commands: dict[str, dict[str, Any]] = {
        "filesystem": stdio("mcp-server-filesystem", "/data", runtime=runtime, dataSize="64Mi"),
        "everything": stdio("mcp-server-everything", runtime=runtime),
        "memory": stdio(
            "mcp-server-memory", runtime=runtime, dataSize="16Mi", env={"MEMORY_FILE_PATH": "/data/memory.jsonl"}
        ),
        "git": stdio("sh", "-c", GIT, runtime=runtime, dataSize="64Mi"),
        "time": stdio("python3", "-m", "mcp_server_time", "--local-timezone", "UTC", runtime=runtime),
        **{name: stdio("python3", "-m", f"{DEMO}.{name}", runtime=runtime) for name in ("sheets", "trips", "slack")},
    }
    probe = tool_server(
        "probe",
        stdio=stdio("python3", "-m", f"{DEMO}.probe", runtime=runtime),
        policy={"rules": [{"tools": ["crash"], "action": "Deny"}]},
        limits={"callTimeoutSeconds": 3},
    )
    # servers whose tools say that they destroy would ask for consent: here they may do it
    free = {"rules": [{"tools": ["*"], "action": "Allow"}]}
    return [*(tool_server(name, stdio=each, policy=free) for name, each in commands.items()), probe]


@pytest.fixture(scope="module")
def agent(installed: Cluster, gateway: Gateway, runtimes: dict[str, str | None]) -> Iterator[Agent]:
    """Runs code in a gVisor pool, where the cluster has that, with all the servers up."""
    with running(installed, *manifests(runtimes.get("gvisor"))):
        yield Agent(cluster=installed, gateway=gateway, pool="gvisor" if "gvisor" in runtimes else "default")


@pytest.fixture(scope="module")
def remote(installed: Cluster, agent: Agent) -> Iterator[Agent]:
    """The same with a server that somebody else runs, and that speaks streamable HTTP."""
    workload = http_server("elsewhere", f"{DEMO}.probe")
    installed.apply(*workload)
    installed.rolled_out("elsewhere", seconds=120)
    service = installed.get("Service", "elsewhere")["spec"]
    server = tool_server(
        "remote",
        url=f"http://{service['clusterIP']}:{service['ports'][0]['port']}/mcp",
        headers=[{"name": "X-Team", "value": "blue"}],
        userHeaders=[{"name": "X-Behalf", "prefix": "user ", "secretName": "remote-users"}],
    )
    with running(installed, *workload, secret("remote-users", **{"u-42": "forty-two"}), server):
        yield agent


def test_every_server_lists_its_tools_in_its_status(installed: Cluster, agent: Agent) -> None:
    found = statuses(installed)
    assert {name: found[name]["tools"] for name in TOOLS} == TOOLS
    assert all(found[name]["catalogHash"] and found[name]["protocolVersion"] for name in TOOLS)
    table = installed.kubectl("get", "ts", "-n", NAMESPACE)
    assert "filesystem" in table
    assert "PROTOCOL" in table


FILES = """
from servers.filesystem import list_directory, read_text_file, write_file
await write_file({"path": "/data/notes.txt", "content": "Grüße\\nfrom a sandbox\\n"})
listing = await list_directory(path="/data")
text = await read_text_file(path="/data/notes.txt")
[text["content"], "notes.txt" in str(listing)]
"""
GRAPH = """
from servers.memory import create_entities, create_relations, read_graph
names = ["Ada", "Grace"]
await create_entities(entities=[{"name": n, "entityType": "person", "observations": []} for n in names])
await create_relations(relations=[{"from": "Ada", "to": "Grace", "relationType": "knows"}])
graph = await read_graph()
[sorted(e["name"] for e in graph["entities"]), graph["relations"][0]["relationType"]]
"""
REPOSITORY = """
from servers.git import git_status
status = await git_status(repo_path="/data/repo")
"On branch" in str(status)
"""
CLOCK = """
from servers.time import convert_time
answer = await convert_time(source_timezone="Europe/Berlin", time="12:00", target_timezone="Asia/Tokyo")
answer["target"]["timezone"]
"""
EVERYTHING = """
from pathlib import Path
from servers.everything import echo, get_sum, get_structured_content, get_tiny_image
said, total = await echo(message="hello"), await get_sum(a=2, b=3)
weather = await get_structured_content(location="New York")
picture = await get_tiny_image()
path = Path(picture.images[0].path)
[said, "5" in str(total), sorted(weather), str(path).startswith("/workspace/"), path.read_bytes()[:4].hex()]
"""
REAL = {
    "filesystem": (FILES, ["Grüße\nfrom a sandbox\n", True]),
    "memory": (GRAPH, [["Ada", "Grace"], "knows"]),
    "git": (REPOSITORY, True),
    "time": (CLOCK, "Asia/Tokyo"),
    "everything": (
        EVERYTHING,
        ["Echo: hello", True, ["conditions", "humidity", "temperature"], True, "89504e47"],
    ),
}


@pytest.mark.parametrize("server", REAL)
def test_code_calls_a_real_server_through_its_wrappers(agent: Agent, server: str) -> None:
    code, expected = REAL[server]
    done = agent.run(code, f"{server}.*")
    assert (done["phase"], done["output"]["result"]) == ("Succeeded", expected), done
    assert done["toolCalls"]["failed"] == 0
    assert done["toolCalls"]["byTool"]
    assert all(tool.startswith(f"{server}.") for tool in done["toolCalls"]["byTool"])


FORMS = """
import sys
import servers.trips
from servers import filesystem, sheets
from servers.time import convertTime
loaded = sorted(name for name in sys.modules if name.startswith("servers.time."))
await filesystem.writeFile("/data/forms.txt", "by position")
text = await filesystem.read_text_file("/data/forms.txt", head=1)
trip = await servers.trips.planTrip("Phoenix", destination="Seattle")
rows = await sheets.getSheet({"sheetId": "abc123"}, limit=3)
same = await call_mcp_tool("sheets.getSheet", {"sheetID": "abc123", "Limit": 3})
noon = [await convertTime("Europe/Berlin", "12:00", targetTimezone="Asia/Tokyo"),
        await call_mcp_tool("mcp__time__convert_time", "Europe/Berlin", "12:00", "Asia/Tokyo", dict)]
found = search_tools("plan a trip", "full", 1)[0]["signature"].partition(")")[0]
[loaded, text["content"], trip["destination"], len(rows), rows == same, noon[0] == noon[1], found]
"""


def test_code_calls_tools_in_the_forms_that_models_write(agent: Agent) -> None:
    done = agent.run(FORMS, "filesystem.*", "sheets.*", "time.*", "trips.*")
    expected = [["servers.time.convert_time"], "by position", "Seattle", 3, True, True]
    expected.append("plan_trip(origin: str, destination: str")
    assert (done["phase"], done["output"]["result"]) == ("Succeeded", expected), done


def test_ten_thousand_rows_stay_in_the_sandbox_and_five_are_printed(agent: Agent) -> None:
    done = agent.run((EXAMPLES / "filter_rows.py").read_text(), "sheets.get_sheet")
    assert done["output"]["result"] == {"rows": 10_000, "pending": 511}, done
    assert len(done["output"]["stdout"].splitlines()) == 6
    calls = done["toolCalls"]
    assert calls["byTool"] == {"sheets.get_sheet": 1}
    assert calls["bytesIn"] > 500_000
    assert calls["bytesKept"] > 0.99 * calls["bytesIn"]


def test_a_trip_is_planned_priced_and_booked_in_one_block(agent: Agent) -> None:
    done = agent.run((EXAMPLES / "plan_trip.py").read_text(), "trips.*", context={"guest": "Ada"})
    assert done["output"]["result"] == {"waypoints": ["Flagstaff", "Las Vegas", "Boise"], "total": 620.3, "bookings": 3}
    assert done["toolCalls"]["total"] == 6


def test_code_polls_a_channel_until_a_message_comes(agent: Agent) -> None:
    code = (EXAMPLES / "wait_for_message.py").read_text()
    done = agent.run(code, "slack.*", context={"release": "web 2.0"})
    assert done["output"]["stdout"] == "Deployment complete!\n", done
    assert done["output"]["result"] == {"looks": 4}
    assert done["toolCalls"]["byTool"] == {"slack.post_message": 1, "slack.get_channel_history": 4}


FAILURES = """
import asyncio
from client import ToolDenied, ToolError, ToolProtocolError, ToolTimeout, call_mcp_tool

async def kind(tool, **arguments):
    try:
        return await call_mcp_tool(tool, arguments)
    except ToolError as error:
        return [type(error).__name__, error.reason, error.tool, str(error)]

await asyncio.gather(
    kind("probe.fail", message="on purpose"),
    kind("probe.crash"),
    kind("filesystem.read_text_file", path="/data/notes.txt"),
    kind("probe.slow", seconds=60),
    kind("probe.echo", valeu=1),
    kind("probe.ecko", value=1),
    kind("probe.echo", value="fine"),
)
"""


def test_each_failure_is_an_exception_of_its_own_and_the_others_go_on(agent: Agent) -> None:
    failed, denied, foreign, slow, wrong, unknown, fine = agent.value(FAILURES, "probe.*")
    assert failed[0] == "ToolError"
    assert "on purpose" in failed[3]
    assert denied[:3] == ["ToolDenied", "DeniedByPolicy", "probe.crash"]
    assert foreign[:2] == ["ToolDenied", "NotAllowed"]
    assert slow[0] == "ToolTimeout"
    assert wrong[:2] == ["ToolError", "InvalidArguments"]
    assert "value" in wrong[3]
    assert unknown[:2] == ["ToolError", "NoSuchTool"]
    assert "probe.echo" in unknown[3] or "echo" in unknown[3]
    assert fine == "fine"


def test_a_server_whose_pod_is_deleted_in_the_middle_fails_that_call_and_comes_back(
    installed: Cluster, agent: Agent
) -> None:
    code = """
from client import ToolError
from servers.everything import echo, trigger_long_running_operation
await echo(message="its session is open")  # a call that has to open one reports an unavailable server instead
try:
    await trigger_long_running_operation(duration=25, steps=5)
    answer = "it was done"
except ToolError as error:
    answer = [type(error).__name__, error.reason]
answer
"""

    def answers() -> bool:
        done = agent.run("from servers.everything import echo\nawait echo(message='back')", "everything.*")
        return bool(done["phase"] == "Succeeded")

    eventually(answers, seconds=120, every=2, what="the server is there")  # another test may have ended it
    name = agent.start(code, "everything.*")

    with agent.gateway.client.stream("GET", f"/v1/executions/{name}/events", timeout=paced(60)) as stream:
        assert any("tool_call" in line and "operation" in line for line in stream.iter_lines())
        # asked to go, as by a drain: it says farewell to the broker, where a killed gVisor would not
        installed.delete("Pod", *installed.names("Pod", labels="mcp-exec.dev/tool-server=everything"), wait=False)
    status = installed.finished(name)
    assert status["output"]["result"] == ["ToolProtocolError", "ConnectionLost"], status
    eventually(answers, seconds=120, every=2, what="the server is back")


TWO_CALLS = """
import asyncio
from servers.probe import delete_everything

async def tick():
    for number in range(600):
        print("tick", number, flush=True)
        await asyncio.sleep(1)

ticking = asyncio.create_task(tick())
for _ in range(2):
    await delete_everything(confirm=True)
    print("done", flush=True)
ticking.cancel()
"""
PATCH_PAGE = "kubectl/executions.md"


def test_approvals_may_take_longer_than_the_code_and_are_given_by_the_gateway_and_as_the_page_shows(
    installed: Cluster, agent: Agent, url: str
) -> None:
    with toolservers.approver(installed, url) as client:
        name = agent.start(TWO_CALLS, "probe.*", timeoutSeconds=2)
        with client.stream(
            "GET", f"/v1/executions/{name}/events", headers={"Accept": "application/x-ndjson"}
        ) as stream:
            events = (json.loads(line) for line in stream.iter_lines() if line)
            noted = next(event for event in events if event["type"] == "approval")
            assert any("tick 3" in event.get("text", "") for event in events)  # three seconds
            path = f"/v1/executions/{name}/approvals/{noted['approval']}"
            assert client.post(path, json={"decision": "Approve"}).status_code == 200
            assert any(event["type"] == "approval" for event in events)
    # the second call waits: the sign of it, the list, and the page's commands
    eventually(
        lambda: installed.get("CodeExecution", name)["status"].get("reason") == "AwaitingApproval"
        and agent.approval(name)["id"] != noted["approval"],
        seconds=20, every=0.2, what="the second call waits",
    )  # fmt: skip
    listed = agent.gateway.client.get("/v1/approvals", params={"state": "pending"}).json()["items"]
    assert [item["tool"] for item in listed if item["execution"] == name] == ["probe.delete_everything"]
    script = "\n".join(step.command for step in steps(PATCH_PAGE)).replace("jane@example.com", installed.username)
    printed = installed.run("bash", "-euc", script).stdout
    assert f"{name} " in printed, printed
    assert 'probe.delete_everything {"confirm": true}' in printed, printed
    status = installed.finished(name)
    assert (status["phase"], status["output"]["stdout"].count("done")) == ("Succeeded", 2), status
    assert [each["state"] for each in status["approvals"]] == ["Approved", "Approved"]
    assert installed.username in status["approvals"][1]["decidedBy"]
    assert status["durations"]["approval"] > 3000 > status["durations"]["run"]


def test_the_command_line_searches_tools_and_decides_on_calls(
    installed: Cluster, agent: Agent, url: str, api_key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*arguments: str, key: str = api_key) -> str:
        capsys.readouterr()
        mcp_exec([*arguments, "--gateway", url, "--api-key", key])
        return capsys.readouterr().out

    assert "probe.delete_everything" in call("tools", "search", "delete", "everything", "-o", "name").splitlines()
    assert "from servers.probe import delete_everything" in call("tools", "show", "probe.delete_everything")
    name = agent.start(TWO_CALLS, "probe.*")
    first = agent.approval(name)["id"]
    assert f"{name} {first}" in call("approvals", "-o", "name").splitlines()
    with toolservers.approver(installed, url) as client:
        key = client.headers["Authorization"].removeprefix("Bearer ")
        said = call("approve", name, first, key=key)
    assert said == f'Approved: probe.delete_everything {{"confirm": true}} of {name}\n'
    second = eventually(
        lambda: agent.approval(name)["id"] if agent.approval(name)["id"] != first else None,
        seconds=20, every=0.2, what="the second call waits",
    )  # fmt: skip
    capsys.readouterr()
    arguments = ["deny", name, str(second), "--comment", "no", "-n", NAMESPACE]
    kubectl_main([*arguments, "--kubeconfig", str(installed.kubeconfig)])
    assert capsys.readouterr().out.startswith("Denied: probe.delete_everything")
    status = installed.finished(name)
    assert (status["phase"], [each["state"] for each in status["approvals"]]) == ("Failed", ["Approved", "Denied"])
    with pytest.raises(SystemExit) as ended:
        call("approve", name, first)
    assert ended.value.code == 3


def test_a_streamable_http_server_is_called_with_the_headers_of_its_toolserver_and_of_the_user(remote: Agent) -> None:
    code = "from servers.remote import headers\n{name.lower(): value for name, value in (await headers()).items()}"
    sent = remote.value(code, "remote.*", user="u-42")
    # the credential of this very user went there: nothing else of what comes back is taken out
    assert (sent["x-team"], sent["x-behalf"]) == ("blue", "user [CREDENTIAL REDACTED]")
    stranger = """
from client import ToolDenied
from servers.remote import headers
try:
    answer = await headers()
except ToolDenied as error:
    answer = error.reason
answer
"""
    assert remote.value(stranger, "remote.*", user="u-7") == "NoUserCredentials"


def test_code_finds_exactly_the_tools_that_it_may_call(agent: Agent) -> None:
    code = """
import os
from tool_discovery import search_tools
everything = search_tools("", detail_level="name_only", limit=1000)
found = search_tools("write a file", detail_level="full")
[sorted({t["server"] for t in everything if "kind" not in t}), found[0]["name"], sorted(found[0]), sorted(
    name for name in os.listdir("/workspace/servers") if not name.startswith("_") and "." not in name)]
"""
    servers, best, keys, folders = agent.value(code, "filesystem.*", "time.convert_time")
    assert servers == folders == ["filesystem", "time"]
    assert best == "write_file"
    assert {"name", "server", "description", "input_schema"} <= set(keys)


def test_a_model_finds_ten_thousand_rows_by_code_and_reads_five(
    agent: Agent, url: str, api_key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (EXAMPLES / "filter_rows.py").read_text()
    model = MessagesApi(
        [uses("search_tools", query="rows of a spreadsheet")],
        [uses("search_tools", query="get sheet", detail_level="full", limit=1)],
        [uses("execute_code", code=code)],
        lambda request: [says(json.loads(results_in(request)[0]["content"])["stdout"].splitlines()[0])],
    )
    with model.serving():
        monkeypatch.setenv("ANTHROPIC_API_KEY", MODEL_KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        options = ["--gateway", url, "--api-key", api_key, "--tool", "sheets.*", "--pool", agent.pool]
        mcp_exec(["agent", "How many orders are pending?", *options])
    said = capsys.readouterr()
    assert said.out.startswith("Found ")
    assert said.out.endswith("pending orders of 10000\n")
    steps = [word for line in said.err.splitlines() if (word := line.split()[0]) != "|"]
    assert steps == ["mode", "search", "describe", "code", "execute", "results", "answer"]
    (described,) = json.loads(results_in(model.requests[2])[0]["content"])
    assert (described["server"], described["name"]) == ("sheets", "get_sheet")
    # the model's whole input, its own words and the prompt included: the rows are a megabyte
    assert len(json.dumps(model.requests[-1])) < 12_000


def test_code_of_a_pool_that_allows_an_hour_calls_tools_by_a_grant_for_so_long(
    agent: Agent, make_pool: MakePool
) -> None:
    make_pool("hour", maxTimeoutSeconds=3600)
    code = "from servers.probe import echo\nawait echo(value=1)"
    assert agent.value(code, "probe.*", timeoutSeconds=3600, poolRef={"name": "hour"}) == 1
    refused = agent.gateway.client.post("/v1/executions", json={"code": "1", "timeoutSeconds": 301})
    assert (refused.status_code, "300 seconds that pool default allows" in refused.text) == (422, True), refused.text


REMEMBER = """
from mcp_exec_sandbox.tools.tool_session import get_session
from servers.probe import echo
earlier, first = get_session(), await echo(value=1)
first
"""
REUSED = """
from client import ToolDenied
second = await echo(value=2)
try:
    stale = await earlier.call("probe.echo", {"value": 3}, None)
except ToolDenied as error:
    stale = error.reason
[second, stale]
"""


def test_each_execution_of_a_session_calls_tools_by_its_own_grant_and_by_no_earlier_one(
    agent: Agent, runtimes: dict[str, str | None]
) -> None:
    for pool in runtimes:
        session = {"session": f"tools-{pool}", "poolRef": {"name": pool}}
        first = agent.run(REMEMBER, "probe.*", **session)
        second = agent.run(REUSED, "probe.echo", **session)
        third = agent.run("await echo(value=4)", **session)
        assert first["output"]["result"] == 1, first
        assert second["output"]["result"] == [2, "ExecutionEnded"], second
        assert (second["start"], third["error"]["type"]) == ("Session", "ToolDenied"), third
        assert [each["toolCalls"]["byTool"] for each in (first, second)] == [{"probe.echo": 1}] * 2
    agent.cluster.delete("SandboxSession", *agent.cluster.names("SandboxSession"), wait=False)


@pytest.fixture
def two_brokers(installed: Cluster, agent: Agent) -> Iterator[set[str]]:
    """The broker's pods, two of them during the test."""

    def scale(replicas: int) -> set[str]:
        installed.kubectl("scale", "-n", SYSTEM, f"deployment/{BROKER}", f"--replicas={replicas}")
        installed.rolled_out(BROKER, namespace=SYSTEM, seconds=120)
        return eventually(lambda: found if len(found := ready_brokers(installed)) == replicas else set(), seconds=60)

    yield scale(2)
    scale(1)


def ready_brokers(cluster: Cluster) -> set[str]:
    """Return the broker's pods that its slices list as ready."""
    found = cluster.select("EndpointSlice", namespace=SYSTEM, labels=f"kubernetes.io/service-name={BROKER}")
    return {
        endpoint["targetRef"]["name"]
        for item in found
        for endpoint in item.get("endpoints") or []
        if endpoint["conditions"].get("ready") is not False
    }


def test_executions_use_all_brokers_and_then_those_that_are_left(
    installed: Cluster, agent: Agent, two_brokers: set[str]
) -> None:
    def attempt() -> dict[str, Any] | None:
        """Run an execution that calls a tool. On a busy node a broker's first connection to the server takes long."""
        done = agent.run("from servers.probe import echo\nawait echo(value=1)", "probe.echo")
        return None if "(ServerUnavailable)" in str(done.get("error")) else done

    def call() -> str:
        """Run an execution that calls a tool, and return its name."""
        done = eventually(attempt, seconds=60, what="the broker is connected to the server")
        assert (done["phase"], done["toolCalls"]["total"]) == ("Succeeded", 1), str(done)
        return str(done["name"])

    def broker_of(name: str) -> str:
        """Return the broker that has logged the execution's call."""
        pods = sorted(two_brokers)
        found = eventually(
            lambda: next((pod for pod in pods if name in installed.logs(pod, namespace=SYSTEM)), None),
            what=f"a broker has logged the call of {name}",
        )
        return str(found)

    used: set[str] = set()
    # an execution chooses by its uid: thirty choose the same broker once in 500 million times
    for _ in range(30):
        used.add(broker_of(call()))
        if used == two_brokers:
            break
    assert used == two_brokers
    gone, left = sorted(two_brokers)
    installed.kubectl("delete", "pod", "-n", SYSTEM, gone, "--wait=false")
    eventually(lambda: gone not in ready_brokers(installed), seconds=30, every=0.1, what=f"{gone} is not ready")
    assert left in ready_brokers(installed)
    for _ in range(3):
        call()
