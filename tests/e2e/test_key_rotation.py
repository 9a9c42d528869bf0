"""A rotation of the sandbox key under load: no process restarts, and no run, session, link or skill is lost."""

import base64
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import httpx
import pytest

from mcp_exec_api.constants import LABEL_POOL, LABEL_STATE, LABEL_TOOL_SERVER
from mcp_exec_api.meta import micro_time
from mcp_exec_common.sandbox_keys import SandboxKeys, read_keys
from mcp_exec_common.supervisor.tokens import read_token_digest, supervisor_token, token_digest
from mcp_exec_operator.cluster.keys.rotation import ANNOTATION_ROTATE, ANNOTATION_SINCE
from tests.e2e.support import NAMESPACE, RELEASE, SYSTEM, Cluster, Gateway, MakePool, leader
from tests.e2e.toolservers import approver, running, stdio, tool_server
from tests.support.pace import paced
from tests.support.until import eventually

pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]
SECRET = f"{RELEASE}-sandbox-key"
COMPONENTS = ("operator", "gateway", "broker")
READ_SECONDS = paced(180)
"""Time for the kubelet to write a changed Secret into all pods, and for the operator to read it."""
PAUSE_SECONDS = 1.0
"""Between two runs of one caller: a namespace keeps 1,500 executions that have ended, and one of them has a file."""
CALL = "from servers.sums import add\nawait add(a=1, b=2)"
CODE = '''
def run(a: int) -> int:
    """Return the double.

    Args:
        a: A number.
    """
    return 2 * a
'''
FILE = "import pathlib\npathlib.Path('artifacts').mkdir(exist_ok=True)\npathlib.Path('artifacts/a.txt').write_text('a')"


class Load:
    """Callers that run code, with tools and in sessions, until they are stopped."""

    def __init__(self, gateway: Gateway, *, pool: str) -> None:
        self.failures: list[str] = []
        self.counts = {"plain": 0, "tools": 0, "session": 0}
        self._gateway, self._pool, self._over = gateway, pool, threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(kind,)) for kind in self.counts]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=paced(120))

    def went_on(self) -> bool:
        """Return whether each caller has had three answers since the last call, or a failure."""
        if self.failures or all(number >= 3 for number in self.counts.values()):
            self.counts = dict.fromkeys(self.counts, 0)
            return True
        return False

    def _work(self, kind: str) -> None:
        for number in count(1):
            if self._over.is_set():
                return
            code = f"n = {number} if {number} == 1 else n + 1\nn" if kind == "session" else CALL
            more: dict[str, Any] = {"plain": {}, "tools": {"tools": ["sums.*"]}, "session": {"session": "rotated"}}
            wanted = {"plain": None, "tools": 3, "session": number}[kind]
            try:
                view = self._gateway.run(
                    "None" if kind == "plain" else code, poolRef={"name": self._pool}, **more[kind]
                )
                if view["phase"] != "Succeeded" or view["output"].get("result") != wanted:
                    self.failures.append(f"{kind} {number}: {view}")
                    return
            except (AssertionError, httpx.HTTPError) as error:
                self.failures.append(f"{kind} {number}: {error!r}")
                return
            self.counts[kind] += 1
            self._over.wait(PAUSE_SECONDS)


def read_secret(cluster: Cluster) -> dict[str, bytes]:
    data = cluster.get("Secret", SECRET, namespace=SYSTEM)["data"]
    return {entry: base64.b64decode(key) for entry, key in data.items()}


def list_processes(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Return the pods of all components by name."""
    return {
        pod["metadata"]["name"]: pod
        for component in COMPONENTS
        for pod in cluster.select("Pod", namespace=SYSTEM, labels=f"app.kubernetes.io/component={component}")
    }


def count_restarts(cluster: Cluster) -> dict[str, int]:
    """Return the restarts of the containers of all components, and of the stdio server, by pod."""
    servers = cluster.live_pods(f"{LABEL_TOOL_SERVER}=sums")
    pods = [*list_processes(cluster).values(), *servers]
    assert servers
    return {
        pod["metadata"]["name"]: sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
        for pod in pods
    }


def until_all_use(cluster: Cluster, entries: dict[str, bytes]) -> None:
    """Wait until the leader, all gateways and all brokers have logged that they use these keys."""
    # with the end of the text, since "X signs" also begins "X signs, Y is accepted, too"
    said = f'the sandbox keys have changed: {SandboxKeys(*read_keys(entries)).describe()}"'

    def missing() -> list[str]:
        operators = {name for name in list_processes(cluster) if "-operator-" in name} - {leader(cluster)}
        return [
            name
            for name in list_processes(cluster)
            if name not in operators and said not in cluster.logs(name, namespace=SYSTEM)
        ]

    eventually(lambda: not missing(), seconds=READ_SECONDS, every=2, what=f"every process has {sorted(entries)}")


def advance(cluster: Cluster, *, by: timedelta, entries: set[str]) -> dict[str, bytes]:
    """Let the present keys be older by so much, and return the entries once they are these."""
    since = micro_time(datetime.now(UTC) - by)
    cluster.merge("Secret", SECRET, {"metadata": {"annotations": {ANNOTATION_SINCE: since}}}, namespace=SYSTEM)
    eventually(lambda: read_secret(cluster).keys() == entries, seconds=90, every=1, what=f"the Secret has {entries}")
    return read_secret(cluster)


def finish_rotation(cluster: Cluster) -> None:
    """End the rotation that an interrupted run has left."""
    if "next-key" in read_secret(cluster):
        advance(cluster, by=timedelta(minutes=5), entries={"key", "previous-key"})
    if "previous-key" in read_secret(cluster):
        advance(cluster, by=timedelta(days=31), entries={"key"})


@pytest.fixture
def sums(installed: Cluster) -> Iterator[None]:
    """A stdio server, whose bridge has a token."""
    with running(installed, tool_server("sums", stdio=stdio("python3", "-m", "mcp_exec_servers.calculator"))):
        yield
    installed.delete("SandboxSession", *installed.names("SandboxSession"))
    installed.delete("Skill", *(name for name in installed.names("Skill") if name.startswith("rotated-")))


def save_skill(cluster: Cluster, gateway: Gateway, url: str) -> tuple[str, dict[str, Any]]:
    """Save a skill and approve it. Return its path and its view as a draft."""
    saved = gateway.client.post("/v1/skills", json={"name": "rotated", "description": "Double it.", "code": CODE})
    assert saved.status_code == 201, saved.text
    view = dict(saved.json())
    path = f"/v1/skills/rotated/versions/{view['version']}"
    with approver(cluster, url) as boss:
        answer = boss.post(f"{path}/approve", json={"digest": view["digest"]})
        assert answer.status_code == 200, answer.text
    return path, view


def list_warm_of(cluster: Cluster, key: bytes, pool: str) -> set[str]:
    """Return the warm pods whose token is derived from a key."""
    labels = f"{LABEL_POOL}={pool},{LABEL_STATE}=warm"
    return {
        pod["metadata"]["name"]
        for pod in cluster.live_pods(labels)
        if read_token_digest(pod)
        == token_digest(supervisor_token(key=key, namespace=NAMESPACE, pod=pod["metadata"]["name"]))
    }


def test_a_rotation_under_load_loses_nothing_and_restarts_nothing(
    installed: Cluster, gateway: Gateway, url: str, make_pool: MakePool, sums: None
) -> None:
    finish_rotation(installed)
    make_pool("rotation", warm=3, maxPods=12)
    before, (old,) = count_restarts(installed), read_keys(read_secret(installed))
    skill, view = save_skill(installed, gateway, url)
    made = gateway.run(FILE, poolRef={"name": "rotation"})
    link = gateway.client.get(f"/v1/executions/{made['name']}/artifacts").json()["items"][0]["url"]
    with Load(gateway, pool="rotation") as load:
        eventually(load.went_on, seconds=120, every=0.5)
        annotations = {ANNOTATION_ROTATE: "now"}
        installed.merge("Secret", SECRET, {"metadata": {"annotations": annotations}}, namespace=SYSTEM)
        eventually(lambda: "next-key" in read_secret(installed), seconds=90, every=1, what="the new key is published")
        published = read_secret(installed)
        until_all_use(installed, published)
        eventually(load.went_on, seconds=120, every=0.5)
        signed = advance(installed, by=timedelta(minutes=5), entries={"key", "previous-key"})
        assert (signed["key"], signed["previous-key"]) == (published["next-key"], old)
        # while the processes read it one after the other
        eventually(load.went_on, seconds=120, every=0.5)
        until_all_use(installed, signed)
        eventually(load.went_on, seconds=120, every=0.5)
        eventually(lambda: not list_warm_of(installed, old, "rotation"), seconds=180, every=1, what="new warm pods")
        assert httpx.get(link, trust_env=False).status_code == 200
    assert load.failures == []
    installed.delete("SandboxSession", *installed.names("SandboxSession"))
    retired = advance(installed, by=timedelta(days=31), entries={"key"})
    until_all_use(installed, retired)
    assert retired == {"key": signed["key"]}
    assert httpx.get(link, trust_env=False).status_code == 403
    later = gateway.client.get(skill).json()
    assert (later["author"], later["state"]) == (view["author"], "Approved")
    after = gateway.run(CALL, poolRef={"name": "rotation"}, tools=["sums.*"])
    assert (after["phase"], after["output"]["result"]) == ("Succeeded", 3)
    assert count_restarts(installed) == before
