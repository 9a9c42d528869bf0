"""The release before is upgraded to this checkout under load, and rolled back: nothing is lost, nothing runs twice.

`make upgrade` builds the release before, and sets the variables.
"""

import base64
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.e2e.journal import Journal, journal
from tests.e2e.load import ENDS, Load, executions, violations
from tests.e2e.providers import Provider
from tests.e2e.support import (
    NAMESPACE,
    RELEASE,
    ROOT,
    SYSTEM,
    Cluster,
    Gateway,
    gateway_url,
    pool_manifest,
)
from tests.support.pace import paced
from tests.support.until import eventually

pytestmark = pytest.mark.timeout(900)
BEFORE: Final = Path(os.environ.get("MCP_EXEC_UPGRADE_FROM", "missing"))
TAG_BEFORE: Final = os.environ.get("MCP_EXEC_UPGRADE_TAG", "")
CUSTOM: Final = "custom"
"""A pool whose image is built on the release before, and stays."""
BROKER_GONE: Final = {"WorkspaceUnavailable"}
"""How the release before ends executions with a workspace while the one broker, which holds a volume, is replaced."""
VOLUMES: Final = ("audit", "files", "records")


@pytest.fixture(scope="module")
def volumes(cluster: Cluster, provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the broker's claims get, on a cluster that makes no volumes."""
    claims = [f"{RELEASE}-broker-{name}" for name in VOLUMES]
    needed = [] if cluster.select("StorageClass", namespace=None) else claims
    assert provider.runs_here or not needed, "the cluster needs a StorageClass"
    for name in needed:
        folder = tmp_path_factory.mktemp(name)
        folder.chmod(0o777)
        for parent in folder.parents[:2]:
            parent.chmod(0o755)
        spec = {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": SYSTEM, "name": name},
            "hostPath": {"path": str(folder), "type": "Directory"},
        }
        cluster.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    yield
    cluster.delete("PersistentVolumeClaim", *claims, namespace=SYSTEM)
    cluster.delete("PersistentVolume", *needed, namespace=None)


@pytest.fixture(scope="module")
def values(runtimes: dict[str, str | None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that a platform team keeps; only the version is given apart."""
    content = {
        "pool": {"runtimeClassName": runtimes.get("gvisor") or "NodeDefault", "warm": {"min": 2}},
        "broker": {
            "audit": {"persistence": {"enabled": True}},
            "files": {"enabled": True},
            "records": {"enabled": True},
        },
    }
    path = tmp_path_factory.mktemp("values") / "values.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def released(cluster: Cluster, runtimes: dict[str, str | None], values: Path, volumes: None) -> Iterator[Cluster]:
    """The cluster with the release before, and a pool of a custom image that is built on it."""
    assert not cluster.run("helm", "status", RELEASE, "--namespace", SYSTEM, check=False).stdout, (
        "the cluster has the release: run `make down` first"
    )
    helm(cluster, "install", BEFORE, TAG_BEFORE, values)
    image = f"localhost/mcp-exec-sandbox:{TAG_BEFORE}"
    cluster.apply(pool_manifest(name=CUSTOM, runtime=runtimes.get("gvisor"), image=image, warm=2))
    for pool in ("default", CUSTOM):
        cluster.wait_for("Ready", "SandboxPool", pool, seconds=120)
    yield cluster
    # what stays in the namespace is signed by a key that goes with the release
    cluster.delete("SandboxSession", *cluster.names("SandboxSession"))
    cluster.delete("SandboxPool", CUSTOM)
    cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM)


def helm(cluster: Cluster, verb: str, checkout: Path, tag: str, values: Path) -> None:
    """Install a release or upgrade to it, as its docs say."""
    chart = str(checkout / "charts" / "mcp-exec")
    options = (
        "--namespace",
        SYSTEM,
        "--create-namespace",
        "--values",
        str(values),
        "--set-string",
        f"images.tag={tag}",
    )
    cluster.helm(verb, RELEASE, chart, *options, "--wait", "--timeout", "5m")


@pytest.fixture(scope="module")
def told(released: Cluster) -> Iterator[Journal]:
    with journal(released) as found:
        yield found


@pytest.fixture(scope="module")
def gateway(released: Cluster, provider: Provider) -> Iterator[Gateway]:
    secret = released.get("Secret", f"{RELEASE}-initial-api-key", namespace=SYSTEM)
    headers = {"Authorization": "Bearer " + base64.b64decode(secret["data"]["api-key"]).decode()}
    with ExitStack() as stack:
        url = gateway_url(cluster=released, provider=provider, stack=stack)
        client = stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=paced(120), trust_env=False))
        yield Gateway(client=client)


def uids(cluster: Cluster, pool: str) -> set[str]:
    """The pool's pods that have not been used."""
    labels = f"mcp-exec.dev/pool={pool},mcp-exec.dev/state=warm"
    return {pod["metadata"]["uid"] for pod in cluster.live_pods(labels)}


def images(cluster: Cluster) -> dict[str, int]:
    """How many pods of the release and of the default pool run each tag."""
    pods = cluster.select("Pod", namespace=SYSTEM, labels=f"app.kubernetes.io/instance={RELEASE}")
    pods += cluster.live_pods("mcp-exec.dev/pool=default,mcp-exec.dev/state=warm")
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return dict(Counter(pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in live))


def change_under_load(cluster: Cluster, gateway: Gateway, told: Journal, change: Any, tag: str) -> None:
    """Change the release while executions are created; then all have ended as they should, and the pods have `tag`."""
    eventually(lambda: len(uids(cluster, CUSTOM)) == 2, seconds=60, every=0.5, what="the custom pool is warm")
    kept = uids(cluster, CUSTOM)
    with Load(client=gateway.client, journal=told.address, pools=("default",), every=0.7) as load:
        eventually(lambda: len(load.names) > 10, seconds=60, what="executions are created before the change")
        change()
        for component in ("operator", "gateway", "broker"):
            cluster.rolled_out(f"{RELEASE}-{component}", seconds=180, namespace=SYSTEM)
        eventually(lambda: set(images(cluster)) == {tag}, seconds=180, every=1, what=f"all pods are of {tag}")
        done = len(load.names)
        eventually(lambda: len(load.names) > done + 10, seconds=60, what="executions are created after the change")

    def all_ended() -> bool:
        return all(each.get("phase") in ENDS for each in executions(cluster, load.names).values())

    eventually(all_ended, seconds=180, every=1, what="all executions end")
    statuses = executions(cluster, load.names)
    failed = {name: each for name, each in statuses.items() if each["phase"] != "Succeeded"}
    reasons = Counter(each.get("reason", "") for each in failed.values())
    print(f"{len(statuses)} executions, {load.retries} requests repeated, failed: {dict(reasons)}")
    entries = [each for each in told.entries() if each[0] in load.names.values()]
    assert load.refused + violations(load, statuses, entries) == []
    assert set(reasons) <= BROKER_GONE, failed
    assert uids(cluster, CUSTOM) == kept


def count(gateway: Gateway) -> Any:
    """Count one up in a session that outlives the changes, and return the number."""
    code = "held = globals().get('held', 40) + 1; held"
    ended = gateway.run(code, session="kept", poolRef={"name": CUSTOM})
    assert ended["phase"] == "Succeeded", str(ended)
    return ended["output"]["result"]


def test_an_upgrade_under_load_and_its_rollback_lose_nothing_and_do_nothing_twice(
    released: Cluster, gateway: Gateway, told: Journal, values: Path
) -> None:
    assert count(gateway) == 41
    tag = os.environ["TAG"]

    change_under_load(released, gateway, told, lambda: helm(released, "upgrade", ROOT, tag, values), tag)
    assert count(gateway) == 42
    before = uids(released, CUSTOM)
    ended = gateway.run("print('by the new operator')", poolRef={"name": CUSTOM})
    assert ended["output"]["stdout"] == "by the new operator\n"
    used = released.get("Pod", ended["podName"])["metadata"]["uid"]
    assert used in before, "the pod of the release before serves the new one"
    eventually(lambda: used not in uids(released, CUSTOM), seconds=60, what="the used pod is gone")

    change_under_load(
        released,
        gateway,
        told,
        lambda: released.helm("rollback", RELEASE, "1", "--namespace", SYSTEM, "--wait"),
        TAG_BEFORE,
    )
    assert count(gateway) == 43
    assert gateway.run("print(1)", poolRef={"name": CUSTOM})["phase"] == "Succeeded"
    assert released.names("CodeExecution", namespace=NAMESPACE)
