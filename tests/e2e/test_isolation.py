"""Attempts to leave a sandbox, in each runtime. docs/platform/escape-attempts.md shows the resulting table."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.providers import Provider
from tests.e2e.support import NAMESPACE, RELEASE, ROOT, SYSTEM, Cluster, Gateway, MakePool, api_server, require_gvisor
from tests.e2e.test_typescript import IMAGE, LIMITS
from tests.support.until import eventually

PROBE = (ROOT / "tests/e2e/probe.py").read_text()
SCRIPT_PROBE = (ROOT / "tests/e2e/probe.ts").read_text()
FREE = "free"
"""A namespace with a pod that no policy holds: there the same connections must succeed."""
BEGIN, END = "<!-- isolation: begin -->", "<!-- isolation: end -->"
SERVER = """
import socket, threading
def tcp():
    with socket.create_server(("", 9000)) as server:
        while True:
            server.accept()[0].close()
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("", 9000))
        while True:
            server.sendto(*server.recvfrom(100))
threading.Thread(target=tcp).start()
udp()
"""


@contextmanager
def metadata_listener() -> Iterator[bool]:
    """Listens at the metadata address where it belongs to this machine, as it does on a devcluster."""
    try:
        server = socket.create_server(("169.254.169.254", 80))
    except OSError:
        yield False
        return
    threading.Thread(target=lambda: accept_all(server), daemon=True).start()
    try:
        yield True
    finally:
        server.close()


def accept_all(server: socket.socket) -> None:
    while True:
        try:
            server.accept()[0].close()
        except OSError:
            return


def free_pod(name: str, image: str, program: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": FREE},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", program],
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def free(installed: Cluster) -> Iterator[Cluster]:
    """Two pods that nothing holds: `server` listens, `client` tries what a sandbox may not."""
    image = installed.get("SandboxPool", "runc")["spec"]["image"]
    installed.objects.create_namespace(FREE)
    installed.apply(free_pod("server", image, SERVER), free_pod("client", image, "import signal; signal.pause()"))
    installed.wait_for("Ready", "Pod", "server", "client", namespace=FREE, seconds=60)
    yield installed
    installed.delete("Namespace", FREE, wait=False)


def targets_of(cluster: Cluster) -> dict[str, Any]:
    """Addresses that a sandbox must not reach; behind each of them something listens."""
    service, server, *_ = api_server(cluster)
    node = cluster.select("Node")[0]["status"]
    gateway = cluster.get("Service", f"{RELEASE}-gateway", namespace=SYSTEM)["spec"]

    def another_sandbox() -> str:
        pods = cluster.select("Pod", labels="mcp-exec.dev/pool=default,mcp-exec.dev/state=warm")
        return next((pod["status"]["podIP"] for pod in reversed(pods) if pod["status"].get("podIP")), "")

    return {
        "api_service": list(service),
        "api_server": list(server),
        "node": [next(each["address"] for each in node["addresses"] if each["type"] == "InternalIP"), 10250],
        "pod": [cluster.get("Pod", "server", namespace=FREE)["status"]["podIP"], 9000],
        "sandbox": [eventually(another_sandbox, what="a warm sandbox"), 8700],
        "gateway": [gateway["clusterIP"], gateway["ports"][0]["port"]],
        "metadata": ["169.254.169.254", 80],
        "supervisor_port": 8700,
    }


NETWORK = [
    "connect to the API server (its Service)",
    "connect to the API server (its address)",
    "connect to the node (its kubelet)",
    "connect to another pod",
    "exchange UDP with another pod",
    "connect to the gateway",
]


def test_nothing_that_code_tries_leads_out_of_its_sandbox(free: Cluster, gateway: Gateway, pool: str) -> None:
    with metadata_listener():
        found = gateway.run(PROBE, poolRef={"name": pool}, context={"targets": targets_of(free)}, timeoutSeconds=90)
    assert found["phase"] == "Succeeded", str(found)
    outcomes = found["output"]["result"]
    assert len(outcomes) > 25
    assert {name: outcome for name, outcome in outcomes.items() if outcome.startswith("open")} == {}
    note(pool, outcomes)


def test_nothing_that_typescript_code_tries_leads_out_of_its_sandbox(
    free: Cluster, gateway: Gateway, pool: str, runtimes: dict[str, str | None], make_pool: MakePool
) -> None:
    name = f"probing-{pool}"
    make_pool(name, runtimeClassName=runtimes[pool], image=IMAGE, language="typescript", resources=LIMITS)
    free.wait_for("Ready", "SandboxPool", name, seconds=120)
    with metadata_listener():
        context = {"targets": targets_of(free)}
        found = gateway.run(SCRIPT_PROBE, poolRef={"name": name}, context=context, timeoutSeconds=90)
    assert found["phase"] == "Succeeded", str(found)
    outcomes = found["output"]["result"]
    assert len(outcomes) > 25
    assert {name: outcome for name, outcome in outcomes.items() if outcome.startswith("open")} == {}


def test_a_pod_outside_of_the_pools_does_connect_to_all_of_it(free: Cluster) -> None:
    """What makes the other test mean something: the targets listen, and the cluster lets others through."""
    with metadata_listener() as metadata:
        program = f"targets = {targets_of(free)!r}\n" + PROBE.replace(
            "{name: attempt", "import json\nprint(json.dumps({name: attempt"
        ).replace("in ATTEMPTS.items()}", "in ATTEMPTS.items() if 'connect' in name or 'UDP' in name}))")
        outcomes = json.loads(free.kubectl("exec", "client", "-n", FREE, "--", "python3", "-c", program))
    expected = [*NETWORK, *(["connect to the cloud's metadata address"] if metadata else [])]
    assert {name: outcomes[name] for name in expected if not outcomes[name].startswith("open")} == {}
    assert not outcomes["connect to another sandbox's supervisor"].startswith("open"), "only operator and gateway may"


OPENED = "opened"
"""A pool whose sandboxes a policy of somebody else opens, and that policy."""
OPEN_POLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": OPENED, "namespace": NAMESPACE},
    "spec": {"podSelector": {"matchLabels": {"mcp-exec.dev/pool": OPENED}}, "policyTypes": ["Egress"], "egress": [{}]},
}


def test_code_ends_if_a_policy_opens_its_sandbox(installed: Cluster, gateway: Gateway, make_pool: MakePool) -> None:
    make_pool(OPENED)
    installed.wait_for("Ready", "SandboxPool", OPENED, seconds=90)
    busy = f"mcp-exec.dev/pool={OPENED},mcp-exec.dev/state=busy"
    with ThreadPoolExecutor(1) as executor:
        code = "import threading\nthreading.Event().wait()"
        running = executor.submit(gateway.run, code, poolRef={"name": OPENED}, timeoutSeconds=60)
        eventually(lambda: installed.select("Pod", labels=busy), what="a busy sandbox")
        # The admission policies, where the cluster has any, refuse it from everybody else.
        with installed.as_component("operator") as operator:
            operator.apply(OPEN_POLICY)
        try:
            found = running.result()
        finally:
            installed.delete("NetworkPolicy", OPENED)
    assert (found["phase"], found["reason"]) == ("Failed", "IsolationLost"), str(found)
    assert "can be reached from the sandbox" in found["error"]["message"]


HIDE = """
import os, socket
kept = []
for _ in range(16):
    file = os.open("/workspace/hidden", os.O_RDWR | os.O_CREAT)
    for _ in range(32):
        os.write(file, os.urandom(1 << 20))
    os.unlink("/workspace/hidden")
    sockets = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    socket.send_fds(sockets[0], [b"x"], [file])
    os.close(file)
    kept.append(sockets)
"""
"""Has 512 MiB in deleted files that only sockets hold."""


@pytest.mark.timeout(180)
def test_hidden_files_are_bounded_by_the_memory_of_a_sandbox(
    gateway: Gateway, installed: Cluster, runtimes: dict[str, str | None], make_pool: MakePool
) -> None:
    limits = {"limits": {"cpu": "1", "memory": "256Mi", "ephemeral-storage": "512Mi"}}
    for pool, runtime in runtimes.items():
        name = f"memory-{pool}"
        make_pool(name, runtimeClassName=runtime, workspaceSize="64Mi", resources=limits)
        installed.wait_for("Ready", "SandboxPool", name, seconds=90)
        small = gateway.run("open('file', 'w').write('kept')", poolRef={"name": name})
        assert small["phase"] == "Succeeded", str(small)
        found = gateway.run(HIDE, poolRef={"name": name}, timeoutSeconds=60)
        # since Kubernetes 1.32 the volume itself is as large as `workspaceSize`, before as the memory limit
        assert (found["phase"], found["reason"] in ("OutOfMemory", "StorageLimit")) == ("Failed", True), str(found)


OUTCOMES: dict[str, dict[str, str]] = {}


def note(pool: str, outcomes: dict[str, str]) -> None:
    OUTCOMES[pool] = outcomes


def test_the_table_of_attempts_is_what_was_found(
    cluster: Cluster, provider: Provider, runtimes: dict[str, str | None]
) -> None:
    """UPDATE_DOCS=1 rewrites the table."""
    if "gvisor" not in runtimes:
        require_gvisor(cluster, provider)
    assert set(OUTCOMES) == {"runc", "gvisor"}, "the probes of both runtimes run before this test"
    rows = [
        f"| {name} | {brief(OUTCOMES['gvisor'][name])} | {brief(OUTCOMES['runc'][name])} |" for name in OUTCOMES["runc"]
    ]
    table = "\n".join([BEGIN, "| attempt | gVisor | runc |", "|---|---|---|", *rows, END])
    page = ROOT / "docs/platform/escape-attempts.md"
    text = page.read_text()
    found = text[text.index(BEGIN) : text.index(END) + len(END)]
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(text.replace(found, table))
    else:
        assert found == table, "run the isolation tests with UPDATE_DOCS=1 and look at what changed"


def brief(outcome: str) -> str:
    """The error's name and number-free text: the same in every run."""
    kind, _, message = outcome.partition(": ")
    message = message.split("]")[-1].split(":")[0].split("'")[0].strip()
    return f"{kind}: {message}" if message else kind
