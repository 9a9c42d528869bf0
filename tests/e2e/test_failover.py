"""Operators and gateways go while callers are served: the leader by SIGKILL, all of them by a rolling restart."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest

from mcp_exec_api.constants import API_VERSION
from tests.e2e.support import (
    NAMESPACE,
    OPERATOR,
    RELEASE,
    SYSTEM,
    Cluster,
    leader,
    operator_lease,
    patch_operator,
)
from tests.e2e.toolservers import HARDENED, approver
from tests.support.until import eventually

TAKEOVER_SECONDS = 20
CALLERS = 3
ROLLOUT_KIND, ROLLOUT = "ExecutionRollout", "survivor"
STAGE_SECONDS = 45
"""Longer than a takeover, so that the leader is killed in the middle of a stage."""
# Runs the operator, and nothing more once that was killed: the pod would take its own lease up again at once.
ONCE = """
import pathlib, signal, subprocess, sys
process = subprocess.Popen([sys.executable, "-m", "mcp_exec_operator"])
signal.signal(signal.SIGTERM, lambda *_: process.terminate() if process.poll() is None else sys.exit(0))
pathlib.Path("/tmp/pid").write_text(str(process.pid))
while process.wait() == -signal.SIGKILL:
    signal.pause()
"""
KILL = "import os, pathlib; os.kill(int(pathlib.Path('/tmp/pid').read_text()), 9)"
# Calls the gateway by its Service, over connections that are kept, and repeats nothing that failed.
LOAD = """
import http.client, json, os, pathlib, threading
stop, results = pathlib.Path("/tmp/stop"), []
headers = {"Authorization": "Bearer " + os.environ["API_KEY"], "Content-Type": "application/json"}
def call(connection, text, seconds):
    code = f"import threading\\nthreading.Event().wait({seconds})\\nprint('{text}')"
    connection.request("POST", "/v1/executions?wait=120", json.dumps({"code": code}), headers)
    response = connection.getresponse()
    body = json.loads(response.read())
    fine = response.status == 200 and body["phase"] == "Succeeded" and body["output"]["stdout"] == text + "\\n"
    return "fine" if fine else f"{response.status} {body}"
def work(me):
    connection, number = http.client.HTTPConnection(os.environ["GATEWAY"], 80, timeout=150), 0
    while not stop.exists():
        number += 1
        try:
            results.append(call(connection, f"{me}-{number}", number % 4))
        except Exception as error:
            connection.close()
            results.append(repr(error))
        print(len(results), flush=True)
threads = [threading.Thread(target=work, args=(me,)) for me in range(int(os.environ["CALLERS"]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(results))
"""


@pytest.fixture
def load(installed: Cluster, api_key: str) -> Iterator[Callable[[], Any]]:
    """Callers inside of the cluster. While the context stands they call; then it has what became of each call."""
    image = installed.get("Deployment", f"{RELEASE}-gateway", namespace=SYSTEM)
    address = installed.get("Service", f"{RELEASE}-gateway", namespace=SYSTEM)["spec"]["clusterIP"]
    variables = {"API_KEY": api_key, "GATEWAY": address, "CALLERS": str(CALLERS)}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "load", "namespace": SYSTEM},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "main",
                    "image": image["spec"]["template"]["spec"]["containers"][0]["image"],
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", LOAD],
                    "env": [{"name": name, "value": value} for name, value in variables.items()],
                    "securityContext": HARDENED | {"readOnlyRootFilesystem": False},
                }
            ],
        },
    }

    def done() -> int:
        return len(installed.logs("load", namespace=SYSTEM).split())

    @contextmanager
    def calling() -> Iterator[list[str]]:
        installed.delete("Pod", "load", namespace=SYSTEM)
        installed.apply(pod)
        installed.wait_for("Ready", "Pod", "load", namespace=SYSTEM, seconds=60)
        eventually(lambda: done() > 2 * CALLERS, seconds=60, every=0.5, what="executions end")
        results: list[str] = []
        yield results
        before = done()
        eventually(lambda: done() > before + 2 * CALLERS, seconds=120, every=0.5, what="executions still end")
        installed.kubectl("exec", "load", "-n", SYSTEM, "--", "python3", "-c", "open('/tmp/stop', 'w').close()")
        phase = eventually(
            lambda: installed.get("Pod", "load", namespace=SYSTEM)["status"]["phase"] in ("Succeeded", "Failed"),
            seconds=150, every=0.5, what="all callers are answered",
        )  # fmt: skip
        assert phase
        results += json.loads(installed.logs("load", namespace=SYSTEM).splitlines()[-1])

    yield calling
    installed.delete("Pod", "load", namespace=SYSTEM)


@pytest.fixture
def killable(installed: Cluster) -> Iterator[None]:
    """Operators whose processes stay dead when they are killed, until their probes find out."""
    spec = installed.get("Deployment", OPERATOR, namespace=SYSTEM)["spec"]
    before = spec["template"]["spec"]["containers"][0]
    patch_operator(installed, {"name": before["name"], "command": ["python3", "-c", ONCE]}, replicas=2)
    yield
    patch_operator(installed, {"name": before["name"], "command": before.get("command")}, replicas=spec["replicas"])


def at(moment: str) -> datetime:
    return datetime.fromisoformat(moment)


@pytest.fixture
def arms(installed: Cluster, url: str) -> Iterator[Callable[[], dict[str, str]]]:
    """Returns the arms of a hundred units of a rollout that is in the middle of its first stage."""
    metadata = {"name": ROLLOUT, "namespace": NAMESPACE}
    spec = {
        "arms": [{"name": "direct", "mode": "direct"}, {"name": "code", "mode": "code"}],
        "control": "direct",
        "stages": [
            {"name": "half", "percent": 50, "durationSeconds": STAGE_SECONDS},
            {"name": "all", "percent": 100, "manual": True},
        ],
    }
    installed.apply({"apiVersion": API_VERSION, "kind": ROLLOUT_KIND, "metadata": metadata, "spec": spec})
    with approver(installed, url) as client:

        def read() -> dict[str, str]:
            path = f"/v1/rollouts/{ROLLOUT}/assignments"
            answers = {unit: client.post(path, json={"unit": unit}) for unit in map(str, range(100))}
            return {unit: answer.json()["arm"] for unit, answer in answers.items()}

        eventually(lambda: set(read().values()) == {"direct", "code"}, what="the first stage has begun")
        yield read
    installed.delete(ROLLOUT_KIND, ROLLOUT)


def read_rollout(cluster: Cluster) -> dict[str, Any]:
    return dict(cluster.get(ROLLOUT_KIND, ROLLOUT)["status"])


@pytest.mark.timeout(600)
def test_a_killed_leader_is_replaced_in_time_and_every_execution_ends_as_it_should(
    installed: Cluster, killable: None, load: Callable[[], Any], arms: Callable[[], dict[str, str]]
) -> None:
    before, began = arms(), read_rollout(installed)
    assert began["stage"] == "half"
    with load() as results:
        killed = eventually(lambda: leader(installed), what="an operator leads")
        transitions = operator_lease(installed)["leaseTransitions"]
        installed.kubectl("exec", killed, "-n", SYSTEM, "--", "python3", "-c", KILL)
        last = at(operator_lease(installed)["renewTime"])
        taken = eventually(
            lambda: (found := operator_lease(installed))["leaseTransitions"] > transitions and found,
            seconds=2 * TAKEOVER_SECONDS, every=0.2, what="another operator leads",
        )  # fmt: skip
    assert taken
    assert not taken["holderIdentity"].startswith(f"{killed}_")
    seconds = (at(taken["acquireTime"]) - last).total_seconds()
    assert 0 < seconds < TAKEOVER_SECONDS
    assert [each for each in results if each != "fine"] == []

    # the stage goes on as it was, and ends when it would have ended
    assigned, now = arms(), read_rollout(installed)
    if now["stage"] == "half":
        assert (now["since"], assigned) == (began["since"], before)
    ended = eventually(
        lambda: (found := read_rollout(installed))["stage"] == "all" and found,
        seconds=2 * STAGE_SECONDS, every=0.5, what="the next stage has begun",
    )  # fmt: skip
    assert ended
    assert (at(ended["since"]) - at(began["since"])).total_seconds() >= STAGE_SECONDS
    eventually(lambda: arms() != before, what="the gateway assigns the arms of the next stage")
    after = arms()
    assert [unit for unit, arm in before.items() if arm == "code" and after[unit] != "code"] == []
    events = installed.kubectl("describe", "xro", ROLLOUT, "-n", NAMESPACE)
    assert [events.count(f"stage {name} began") for name in ("half", "all")] == [1, 1]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_a_rolling_restart_under_load_drops_no_request(
    installed: Cluster, load: Callable[[], Any], component: str
) -> None:
    def pods() -> set[str]:
        return installed.names("Pod", namespace=SYSTEM, labels=f"app.kubernetes.io/component={component}")

    before = pods()
    with load() as results:
        installed.kubectl("rollout", "restart", "-n", SYSTEM, f"deployment/{RELEASE}-{component}")
        installed.rolled_out(f"{RELEASE}-{component}", namespace=SYSTEM, seconds=180)
        eventually(
            lambda: not before & pods(),
            seconds=360, every=1, what="the old pods are gone",
        )  # fmt: skip
    assert [each for each in results if each != "fine"] == []
    assert all(len(each) for each in results)
    stuck = [
        item["metadata"]["name"]
        for item in installed.select("CodeExecution")
        if item.get("status", {}).get("phase") in (None, "Pending", "Running")
    ]
    assert stuck == []
