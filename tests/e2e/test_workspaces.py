"""Workspaces and artifacts in real sandboxes: what is saved, what is lost with a pod, with a broker, by two writers."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.support import NAMESPACE, RELEASE, SYSTEM, Cluster, Gateway
from tests.support import leftovers
from tests.support.until import eventually

BEGIN = """
import os, pathlib, subprocess
pathlib.Path("data/deep").mkdir(parents=True)
pathlib.Path("data/deep/rows.csv").write_text("id\\n1\\n")
pathlib.Path("run.sh").write_text("#!/bin/sh\\necho ran\\n")
os.chmod("run.sh", 0o755)
for number in range(200):
    pathlib.Path(f"data/{number}.bin").write_bytes(os.urandom(2000))
os.symlink("/proc/1/environ", "link")
show("total\\n1\\n", name="total.csv", title="Total")
pathlib.Path("artifacts/own.txt").write_text("from the folder")
"""
GO_ON = """
import mmap, pathlib, subprocess
# wrappers of tools are there, too, if the namespace has ToolServers
listed = sorted({path.name for path in pathlib.Path(".").iterdir()} - {".mcp-exec", "servers"})
ran = subprocess.run(["./run.sh"], capture_output=True, text=True).stdout
with open("data/0.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    mapped[:4] = b"mmap"
pathlib.Path("data/deep/rows.csv").open("a").write("2\\n")
pathlib.Path("data/1.bin").unlink()
[listed, ran]
"""
CHECK = """
import pathlib
[pathlib.Path("data/deep/rows.csv").read_text(), pathlib.Path("data/0.bin").read_bytes()[:4] == b"mmap",
 len(list(pathlib.Path("data").iterdir()))]
"""
HALF = """
import pathlib, threading
for path in pathlib.Path("data").glob("*.bin"):
    path.write_bytes(b"half")
print("changed", flush=True)
threading.Event().wait(120)
"""
BROKER = "app.kubernetes.io/component=broker"


@pytest.fixture
def run(installed: Cluster, gateway: Gateway, pool: str) -> Iterator[Any]:
    """Runs code with a workspace that no earlier test has used, and returns the status."""
    made: list[str] = []
    workspace = f"flow-{uuid4().hex[:8]}"

    def run(step: str, code: str, *, mode: str = "Write", wait: bool = True, **spec: Any) -> dict[str, Any]:
        name = f"files-{step}-{pool}"
        made.append(name)
        installed.delete("CodeExecution", name)
        given = {"workspace": {"name": workspace, "mode": mode}, "poolRef": {"name": pool}, **spec}
        created = gateway.client.post(
            "/v1/executions", params={"wait": "0"}, json={"name": name, "code": code, **given}
        )
        created.raise_for_status()
        return installed.finished(name, seconds=150) if wait else {"name": name}

    yield run
    installed.delete("CodeExecution", *made)


def restart_broker(installed: Cluster) -> None:
    """End the broker's process, and wait for the next one in its pod."""
    (name,) = installed.names("Pod", namespace=SYSTEM, labels=BROKER)

    def count() -> int:
        return int(installed.get("Pod", name, namespace=SYSTEM)["status"]["containerStatuses"][0]["restartCount"])

    before = count()
    installed.kubectl("exec", name, "-n", SYSTEM, "--", "python3", "-c", "import os; os.kill(1, 15)")
    eventually(lambda: count() > before, seconds=60, every=0.5, what="the broker's container starts again")
    installed.rolled_out(f"{RELEASE}-broker", namespace=SYSTEM, seconds=120)


WRITE_ON = (
    leftovers.HIDE
    + """
import pathlib
work = os.getcwd()
for number in range(200):
    pathlib.Path(f"{number}.txt").write_text("whole")
if os.fork() == 0:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.setpgid(0, 0)
    write_without_main_thread(f"{work}/0.txt")
while os.path.getsize("0.txt") < 10:
    time.sleep(0.01)
"""
)
"""Leaves a process that looks dead and writes to a file of the workspace for ever."""
COUNT = """
import pathlib
[len(list(pathlib.Path(".").glob("*.txt"))), pathlib.Path("0.txt").read_text().strip("x")]
"""


@pytest.mark.timeout(300)
def test_a_workspace_is_saved_whole_while_a_process_that_looks_dead_writes_to_it(run: Any) -> None:
    written = run("write-on", WRITE_ON)
    assert (written["phase"], written["workspace"]["version"]) == ("Succeeded", 1), str(written)
    assert run("count", COUNT)["output"]["result"] == [200, "whole"]


@pytest.mark.timeout(300)
def test_a_workspace_outlives_pods_and_a_broker_and_is_never_half_of_a_run(installed: Cluster, run: Any) -> None:
    first = run("begin", BEGIN)
    assert first["phase"] == "Succeeded", first
    assert (first["workspace"]["base"], first["workspace"]["version"]) == (0, 1)
    assert (first["workspace"]["changedFiles"], first["workspace"]["leftOut"]) == (202, 1)
    assert any("'link': a symbolic link" in note["message"] for note in first["notes"])
    found = {each["name"]: (each["mediaType"], each.get("title"), each.get("preview")) for each in first["artifacts"]}
    assert found == {
        "total.csv": ("text/csv", "Total", "total\n1\n"),
        "own.txt": ("text/plain", None, "from the folder"),
    }
    second = run("go-on", GO_ON)
    assert second["output"]["result"] == [["artifacts", "data", "run.sh"], "ran\n"]
    assert second["workspace"]["changedFiles"] == 3
    state = ["id\n1\n2\n", True, 200]
    reader = run("read", CHECK, mode="Read")
    assert (reader["output"]["result"], "version" in reader["workspace"]) == (state, False)
    # a pod that is killed in the middle of a run
    killed = run("killed", HALF, wait=False, timeoutSeconds=200)
    pod = eventually(
        lambda: (installed.get("CodeExecution", killed["name"]).get("status") or {}).get("podName"),
        seconds=30, every=0.2, what="the run begins",
    )  # fmt: skip
    eventually(
        lambda: "data" in installed.kubectl("exec", pod, "-n", NAMESPACE, "--", "ls", "/workspace"),
        seconds=30, every=0.5, what="the files are in place",
    )  # fmt: skip
    installed.delete("Pod", pod, wait=False)
    assert installed.finished(killed["name"])["reason"] in ("SandboxLost", "Evicted")
    unchanged = run("check", CHECK)
    assert unchanged["output"]["result"] == state
    version = unchanged["workspace"]["version"]
    assert (unchanged["workspace"]["changedFiles"], version) == (0, reader["workspace"]["base"])
    # a broker whose process ends between two runs
    restart_broker(installed)
    after = eventually(
        lambda: status if (status := run("after", CHECK))["phase"] == "Succeeded" else None,
        seconds=60, every=1, what="the broker has the workspace",
    )  # fmt: skip
    assert (after["output"]["result"], after["workspace"]["version"]) == (state, version)
