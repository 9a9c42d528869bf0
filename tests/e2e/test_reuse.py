"""A pod serves one owner again, in runc and gVisor: nothing of a run is left, and nobody else gets the pod."""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.support import NAMESPACE, RELEASE, SYSTEM, Cluster, Gateway, leader
from tests.support import leftovers
from tests.support.pace import paced
from tests.support.until import eventually

MAX_USES = 4
LEAVE = """
import builtins, os, pathlib, subprocess
builtins.left = os.environ["LEFT"] = "left"
for folder in ("/workspace", "/tmp", "/dev/shm"):
    pathlib.Path(folder, "left").write_text("left")
subprocess.Popen(["python3", "-c", "import time; left = time.sleep(600)"], start_new_session=True)
"""
LOOK = """
import builtins, os, pathlib
found = [folder for folder in ("/workspace", "/tmp", "/dev/shm") if pathlib.Path(folder, "left").exists()]
found += ["builtins"] if hasattr(builtins, "left") else []
found += ["environment"] if "LEFT" in os.environ else []
for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        found += ["process"] if b"left = time.sleep" in process.read_bytes() else []
    except OSError:
        pass
return found
"""


@pytest.fixture
def bob(installed: Cluster, gateway: Gateway) -> Iterator[Gateway]:
    """Another caller of the same namespace."""
    key, name = "mcpx_" + secrets.token_urlsafe(32), "e2e-reuse"
    entry = json.dumps({"sha256": hashlib.sha256(key.encode()).hexdigest(), "namespace": NAMESPACE})
    data = {name: base64.b64encode(entry.encode()).decode()}
    installed.merge("Secret", f"{RELEASE}-api-keys", {"data": data}, namespace=SYSTEM)
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=gateway.client.base_url, headers=headers, timeout=paced(120), trust_env=False) as client:
        eventually(lambda: client.get("/v1/executions").status_code == 200, what="the gateway knows the key")
        yield Gateway(client=client)
    installed.merge("Secret", f"{RELEASE}-api-keys", {"data": {name: None}}, namespace=SYSTEM)


@pytest.fixture(scope="module")
def reusing(installed: Cluster, runtimes: dict[str, str | None]) -> Iterator[list[str]]:
    """The running pools of each runtime with few pods, which serve their owners again.

    There is room for more than one: nodes may take a minute to remove the pod of another owner.
    """
    before = {pool: installed.get("SandboxPool", pool)["spec"] for pool in runtimes}
    reuse = {"scope": "Owner", "maxUses": MAX_USES}
    # the pods of sessions that other tests left would take the only place
    installed.delete("SandboxSession", *installed.names("SandboxSession"))
    try:
        for pool in runtimes:
            installed.merge("SandboxPool", pool, {"spec": {"reuse": reuse, "warm": {"min": 0}, "maxPods": 4}})
        for pool in runtimes:
            pods = f"mcp-exec.dev/pool={pool}"
            eventually(lambda pods=pods: not installed.live_pods(pods), seconds=60, what="no pod is warm")
        yield list(runtimes)
    finally:
        for pool, spec in before.items():
            restored = {name: spec[name] for name in ("warm", "maxPods", "reuse")}
            installed.merge("SandboxPool", pool, {"spec": restored})
    for pool, spec in before.items():
        warm = spec["warm"]["min"]
        eventually(
            lambda pool=pool, warm=warm: installed.get("SandboxPool", pool)["status"].get("warm") == warm,
            seconds=120, what="the pool is as warm as before",
        )  # fmt: skip


def run(cluster: Cluster, caller: Gateway, code: str, pool: str, **spec: Any) -> dict[str, Any]:
    """Run code and return its status."""
    answer = caller.run(code, poolRef={"name": pool}, **spec)
    status = dict(cluster.get("CodeExecution", answer["name"])["status"])
    assert status["phase"] == "Succeeded", status
    return status


@pytest.mark.timeout(300)
def test_a_pod_serves_its_owner_until_its_last_use_and_through_an_operator_kill_and_nobody_else(
    installed: Cluster, gateway: Gateway, bob: Gateway, reusing: list[str]
) -> None:
    first = {pool: run(installed, gateway, LEAVE, pool) for pool in reusing}
    for pool in reusing:
        again = run(installed, gateway, LOOK, pool)
        assert (again["start"], again["podUid"]) == ("Reused", first[pool]["podUid"])
        assert again["output"]["result"] == []
    killed = leader(installed)
    installed.kubectl("delete", "pod", killed, "-n", SYSTEM, "--grace-period=0", "--force")
    eventually(lambda: leader(installed) not in ("", killed), seconds=60, what="another operator leads")
    for pool in reusing:
        third, fourth, fifth = (run(installed, gateway, LOOK, pool) for _ in range(3))
        other = run(installed, bob, LOOK, pool)
        kept = first[pool]["podUid"]
        assert [each["podUid"] == kept for each in (third, fourth, fifth)] == [True, True, False]
        assert other["podUid"] not in (kept, fifth["podUid"])
        assert [each["output"]["result"] for each in (third, fourth, fifth, other)] == [[]] * 4


LIVING = """
import os
def threads(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, *fields = file.read().rpartition(")")[2].split()
        return int(fields[16]) - (state == "Z")
    except OSError:
        return 0
[pid for pid in context["pids"] if threads(pid)]
"""
"""Returns those of some processes that have a living thread."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["reuse", "session"])
def test_processes_without_a_main_thread_end_with_their_run(
    installed: Cluster, gateway: Gateway, reusing: list[str], kind: str
) -> None:
    try:
        for pool in reusing:
            fields = {"user": "hider", **({"session": f"hider-{pool}"} if kind == "session" else {})}
            left = run(installed, gateway, leftovers.WITHOUT_MAIN_THREAD, pool, **fields)
            pids = left["output"]["result"]
            again = run(installed, gateway, LIVING, pool, context={"pids": pids}, **fields)
            assert (len(pids), again["podUid"]) == (2, left["podUid"])
            assert again["output"]["result"] == []
    finally:
        installed.delete("SandboxSession", *installed.names("SandboxSession"))


@pytest.mark.timeout(240)
def test_code_of_a_session_stands_still_between_executions_and_all_its_time_counts(
    installed: Cluster, gateway: Gateway, reusing: list[str]
) -> None:
    try:
        for pool in reusing:
            session = {"user": "waker", "session": f"waker-{pool}"}
            tried = run(installed, gateway, leftovers.WAKE, pool, **session)
            assert {tried["output"]["result"][name] for name in ("timer", "parent")} == {-1}
            until = time.monotonic() + 6
            while time.monotonic() < until:
                run(installed, gateway, "1", pool, user="other")
            later = run(installed, gateway, "time.process_time() - used", pool, **session)
            assert later["output"]["result"] < 3, "it is stopped again each second"
            assert later["usage"]["cpuSeconds"] > later["output"]["result"] - 0.2
    finally:
        installed.delete("SandboxSession", *installed.names("SandboxSession"))


HOLD = """
import os, socket
memory = os.memfd_create("held")
for _ in range(100):
    os.write(memory, os.urandom(1 << 20))
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
socket.send_fds(a, [b"x"], [a.fileno(), b.fileno(), memory])
socket.send_fds(b, [b"x"], [a.fileno(), b.fileno()])
"""
"""Leaves a file in two sockets that hold each other."""


@pytest.mark.timeout(240)
def test_a_pod_whose_kernel_keeps_what_a_run_left_is_not_used_again(
    installed: Cluster, gateway: Gateway, reusing: list[str]
) -> None:
    for pool in reusing:
        clean, left, after = (run(installed, gateway, code, pool, user="holder") for code in ("1", HOLD, "1"))
        assert left["podUid"] == clean["podUid"], "a run that leaves nothing ends no pod"
        assert (after["podUid"] == clean["podUid"]) == (pool != "gvisor"), "Linux frees such sockets"


OPEN_IN_GVISOR = ("maps", "environment", "open files", "of 1")
"""Ends of the names of attempts that gVisor allows. The supervisor's variables are erased, and it has no files."""


@pytest.mark.timeout(240)
def test_nothing_that_a_run_leaves_reaches_the_next_one_in_its_pod(
    installed: Cluster, gateway: Gateway, reusing: list[str]
) -> None:
    for pool in reusing:
        first, left, second = (
            run(installed, gateway, code, pool, user="leaver", limits={"outputBytes": 1 << 18})
            for code in (leftovers.LOOK, leftovers.LEAVE, leftovers.LOOK)
        )
        assert len({each["podUid"] for each in (first, left, second)}) == 1
        before, after, did = (each["output"]["result"] for each in (first, second, left))
        assert (did["left"] > 600, did["others"]) == (True, 2)
        done = {
            name: outcome
            for name, outcome in did["outcome"].items()
            if outcome not in leftovers.REFUSED and not name.startswith("attribute")
        }
        assert [name for name in done if pool != "gvisor" or not name.endswith(OPEN_IN_GVISOR)] == []
        assert after["found"] == before["found"]
        assert (after["pid"] != before["pid"], after["random"] != before["random"]) == (True, True)
