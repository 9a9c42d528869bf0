"""`mcp-exec doctor` at a gateway and an API server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.conftest import CEX, KEY, SBP, Gateway
from tests.support.api_server import FakeApiServer
from tests.support.processes import write_kubeconfig

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.sandbox_pool import UNOBSERVED_STATUS
from mcp_exec_client.__main__ import main
from mcp_exec_common.kube.client import custom_resource_path, resource_path

SERVERS = custom_resource_path(TOOL_SERVERS, namespace="agents")


@pytest.fixture
def gateway(gateway_with_broker: Gateway) -> Gateway:
    gateway_with_broker.finish_all(duration="12ms")
    return gateway_with_broker


@pytest.fixture
async def kubeconfig(api: FakeApiServer, tmp_path: Path) -> Path:
    """A kubeconfig of the API server, with a release whose processes run."""
    of_release = {"app.kubernetes.io/name": "mcp-exec", "app.kubernetes.io/instance": "mcp-exec"}
    for component in ("operator", "gateway", "broker"):
        labels = {**of_release, "app.kubernetes.io/component": component}
        metadata = {"name": f"mcp-exec-{component}", "namespace": "mcp-exec-system", "labels": labels}
        pod = {"spec": {"containers": [{"name": component}]}}
        body = {"metadata": metadata, "spec": {"replicas": 1, "template": pod}, "status": {"readyReplicas": 1}}
        api.put(resource_path("deployments", namespace="mcp-exec-system", group="apps/v1"), body)
    for namespace, name, holder in (
        ("agents", "mcp-exec", "mcp-exec-system/mcp-exec-operator"),
        ("empty", "mcp-exec", "mcp-exec-system/mcp-exec-operator"),
        ("mcp-exec-system", "mcp-exec-operator", "pod-a"),
    ):
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": holder, "renewTime": micro_time(now())}}
        api.put(resource_path("leases", namespace=namespace, group="coordination.k8s.io/v1"), lease)
    return write_kubeconfig(tmp_path / "kubeconfig", api.url)


class Seen:
    """Output and exit code of the command."""

    def __init__(self, lines: list[str], end: str) -> None:
        self.lines = lines
        self.end = end

    def about(self, what: str) -> str:
        found = [line for line in self.lines if line.split(maxsplit=1)[1].startswith(what)]
        assert len(found) == 1, self.lines
        return found[0]


async def doctor(capsys: pytest.CaptureFixture[str], *arguments: object) -> Seen:
    def run() -> str:
        try:
            main(["doctor", *map(str, arguments)])
        except SystemExit as ended:
            return str(ended.code)
        return "0"

    end = await asyncio.to_thread(run)
    said = capsys.readouterr()
    return Seen(said.out.splitlines(), end if end == "0" else said.err.splitlines()[-1])


def condition(ready: str, reason: str, message: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": ready, "reason": reason, "message": message}]}


async def test_all_is_well_at_a_gateway_that_works(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    seen = await doctor(capsys, "--gateway", gateway.url + "/", "--api-key", KEY, "--tool", "github.create_issue")
    assert seen.end == "0"
    (name,) = gateway.executions
    assert seen.lines == [
        "skipped  release, pools and toolservers: checking them needs --kubeconfig",
        f"ok       gateway: {gateway.url} is ready",
        "ok       key: it is accepted",
        "ok       tools: 4 that this key may use, of github, my-docs",
        "ok       tool github.create_issue: is a tool of github",
        f"ok       trial run in pool default: {name}: Warm start, 12ms",
    ]
    assert gateway.executions[name]["spec"]["code"] == "print(1)"


async def test_address_and_key_are_taken_from_the_environment(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_EXEC_GATEWAY", gateway.url)
    monkeypatch.setenv("MCP_EXEC_API_KEY", KEY)
    assert (await doctor(capsys)).end == "0"


async def test_a_misspelt_tool_is_a_problem_with_what_was_meant(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = await doctor(capsys, "--gateway", gateway.url, "--api-key", KEY, "--tool", "github.creat_issue")
    assert seen.end == "mcp-exec: 1 problem"
    assert seen.about("tool github") == (
        "problem  tool github.creat_issue: github has no such tool among its 3 -> did you mean github.create_issue?"
    )


@pytest.mark.parametrize(
    ("key", "said"), [(["--api-key", "mcpx_wrong"], "401 unauthenticated: "), ([], "none was given")]
)
async def test_without_a_good_key_nothing_is_run(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], key: list[str], said: str
) -> None:
    seen = await doctor(capsys, "--gateway", gateway.url, *key)
    assert seen.about("key").startswith(f"problem  key: {said}")
    assert seen.about("tools and trial run").startswith("skipped")
    assert (seen.end, gateway.executions) == ("mcp-exec: 1 problem", {})


async def test_a_gateway_that_is_not_there_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    seen = await doctor(capsys, "--gateway", "http://127.0.0.1:1", "--api-key", KEY)
    assert "is the address right" in seen.about("gateway")
    assert seen.end == "mcp-exec: 1 problem"


async def test_a_gateway_that_stops_is_not_ready(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.dependencies.shutdown.draining.set()
    seen = await doctor(capsys, "--gateway", gateway.url, "--api-key", KEY)
    assert "not ready but stopping; still missing: nothing" in seen.about("gateway")


async def test_a_trial_run_that_fails_is_reported_with_a_hint(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    error = {"type": "ImagePullFailed", "message": "ErrImagePull: no such image"}
    gateway.finish_all(phase="Failed", reason="ImagePullFailed", error=error)
    seen = await doctor(capsys, "--gateway", gateway.url, "--api-key", KEY)
    line = seen.about("trial run")
    assert "Failed ImagePullFailed: ErrImagePull: no such image -> correct the pool's `image`" in line
    assert seen.end == "mcp-exec: 1 problem"


async def test_a_trial_run_that_does_not_end_is_cancelled_and_says_why_it_waits(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    bound = {"type": "Bound", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes have room"}
    bound["lastTransitionTime"] = "2026-11-21T20:00:00Z"

    def wait(collection: str, item: dict[str, Any]) -> None:
        if collection == CEX:
            status = {"phase": "Pending", "reason": "Unschedulable", "conditions": [bound]}
            gateway.api.merge(CEX, item["metadata"]["name"], {"status": status})

    gateway.api.on_create = wait
    seen = await doctor(capsys, "--gateway", gateway.url, "--api-key", KEY, "--timeout", "1")
    line = seen.about("trial run")
    assert "has not ended within 1 s: Pending Unschedulable 0/3 nodes have room -> add nodes" in line
    (execution,) = gateway.executions.values()
    assert execution["spec"]["cancelRequested"] is True


async def test_a_pool_that_is_not_there_is_named(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    seen = await doctor(capsys, "--gateway", gateway.url, "--api-key", KEY, "--pool", "big")
    assert "there is no pool big in namespace agents; there are: default, long" in seen.about("trial run")


async def test_pools_and_servers_are_reported_with_their_reasons(
    api: FakeApiServer, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.merge(SBP, "default", {"status": condition("True", "Warm", "3 of 3 pods are warm")})
    api.merge(SBP, "long", {"status": condition("False", "QuotaExceeded", "0 of 3 pods are warm; quota")})
    api.put(SBP, {"metadata": {"name": "new"}, "spec": {"image": "i"}})
    api.put(SBP, {"metadata": {"name": "unserved"}, "spec": {"image": "i"}, "status": UNOBSERVED_STATUS})
    down = {"available": False, "reason": "ServerUnavailable", "message": "nobody answers"}
    pod = {"ready": False, "reason": "CrashLoop", "message": "exit code 1"}
    api.put(SERVERS, {"metadata": {"name": "git"}, "spec": {}, "status": {**down, "workload": pod}})
    api.put(SERVERS, {"metadata": {"name": "github"}, "spec": {}, "status": {"available": True, "tools": 38}})
    api.put(SERVERS, {"metadata": {"name": "idle"}, "spec": {}})
    api.put(SERVERS, {"metadata": {"name": "tracker"}, "spec": {}, "status": down})
    seen = await doctor(capsys, "--kubeconfig", kubeconfig)
    assert seen.about("pool default") == "ok       pool default: 3 of 3 pods are warm"
    assert "QuotaExceeded: 0 of 3 pods are warm; quota -> raise the namespace's" in seen.about("pool long")
    assert "it has no status yet -> is the namespace among" in seen.about("pool new")
    assert "its namespace is not served -> use a served namespace, or add this one" in seen.about("pool unserved")
    assert "CrashLoop: exit code 1 -> follow the message" in seen.about("toolserver git:")
    assert seen.about("toolserver github") == "ok       toolserver github: 38 tools"
    assert "it has no status yet" in seen.about("toolserver idle")
    assert "ServerUnavailable: nobody answers" in seen.about("toolserver tracker")
    assert seen.about("gateway:").startswith("skipped")
    assert [seen.about(f"{each} pods").split()[0] for each in ("operator", "gateway", "broker")] == ["ok"] * 3
    assert seen.end == "mcp-exec: 6 problems"


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("v1.30.13", "ok       kubernetes: 1.30 is supported"),
        ("v1.28.15-eks-1", "warning  kubernetes: Kubernetes 1.28 is older than 1.30, "),
        ("v1.38.0", "warning  kubernetes: Kubernetes 1.38 is newer than 1.37, "),
        ("", "skipped  kubernetes: the API server does not say its version"),
    ],
)
async def test_the_version_of_kubernetes_is_reported_and_is_no_problem(
    api: FakeApiServer, kubeconfig: Path, capsys: pytest.CaptureFixture[str], version: str, line: str
) -> None:
    api.kubernetes = version
    api.merge(SBP, "default", {"status": condition("True", "Warm", "3 of 3 pods are warm")})
    api.remove(SBP, "long")
    seen = await doctor(capsys, "--kubeconfig", kubeconfig)
    assert seen.about("kubernetes").startswith(line)
    assert seen.end == "0"


async def test_a_namespace_without_pools_is_a_problem(
    api: FakeApiServer, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = await doctor(capsys, "--kubeconfig", kubeconfig, "--namespace", "empty")
    assert "namespace empty has none -> create one" in seen.about("pools")
    assert seen.about("toolservers") == "ok       toolservers: namespace empty has none"


async def test_a_kubeconfig_that_can_not_be_read_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = await doctor(capsys, "--kubeconfig", tmp_path / "none")
    assert seen.about("cluster").startswith("problem")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "doctor needs --gateway"),
        (["--gateway", "localhost:8080"], "must begin with http:// or https://"),
        (["--kubeconfig", "x", "--tool", "a.b"], "--tool needs --gateway"),
        (["--gateway", "http://localhost:8080", "--bundle", "x"], "--bundle needs --kubeconfig"),
    ],
)
async def test_options_that_can_not_be_honoured_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.delenv("MCP_EXEC_GATEWAY", raising=False)
    assert said in (await doctor(capsys, *arguments)).end
