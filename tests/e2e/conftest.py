"""A cluster with mcp-exec installed from the chart, once for the whole run.

KUBECONFIG names the cluster; `make e2e` brings one up, loads the images and sets it.
"""

import base64
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.providers import Provider
from tests.e2e.providers import provider as find_provider
from tests.e2e.support import (
    NAMESPACE,
    RELEASE,
    ROOT,
    SYSTEM,
    Cluster,
    Gateway,
    MakePool,
    gateway_url,
    pool_manifest,
    require_gvisor,
)
from tests.support.pace import paced


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig:
        pytest.exit("KUBECONFIG must name the cluster to test on; `make e2e` does that", returncode=2)
    cluster = Cluster(kubeconfig=Path(kubeconfig))
    yield cluster
    cluster.objects.close()


@pytest.fixture(scope="session")
def provider() -> Provider:
    """The kind of the cluster under test."""
    return find_provider()


@pytest.fixture(scope="session")
def runtimes(cluster: Cluster) -> dict[str, str | None]:
    """The runtimes that the cluster has: the name of a pool for each, and its RuntimeClass."""
    found = {item["metadata"]["name"] for item in cluster.select("RuntimeClass")}
    return {"runc": None, **({"gvisor": "gvisor"} if "gvisor" in found else {})}


@pytest.fixture(scope="session")
def installed(cluster: Cluster, runtimes: dict[str, str | None]) -> Cluster:
    """The cluster with the release, and a warm pool for each runtime."""
    values = {
        "operator.image.repository": os.environ.get("OPERATOR_IMAGE", "localhost/mcp-exec-operator"),
        "gateway.image.repository": os.environ.get("GATEWAY_IMAGE", "localhost/mcp-exec-gateway"),
        "pool.image": os.environ.get("SANDBOX_IMAGE", "localhost/mcp-exec-sandbox:dev"),
        "images.tag": os.environ.get("TAG", "dev"),
        "broker.image.repository": os.environ.get("BROKER_IMAGE", "localhost/mcp-exec-broker"),
        "servers.image.repository": os.environ.get("SERVERS_REPOSITORY", "localhost/mcp-exec-servers"),
        "pool.warm.min": "2",
        "pool.runtimeClassName": runtimes.get("gvisor") or "NodeDefault",
        # Not every cluster under test has volumes. The files outlive the broker's container, and not its pod.
        "broker.audit.persistence.enabled": "false",
        "broker.files.enabled": "true",
        "broker.files.volume.temporary": "true",
        "broker.records.enabled": "true",
        "broker.records.volume.temporary": "true",
        **{f"prices.models[0].{name}": "3" for name in ("input", "output", "cacheRead", "cacheWrite")},
        "prices.models[0].model": "metered",
    }
    cluster.helm(
        "upgrade", "--install", RELEASE, str(ROOT / "charts/mcp-exec"), "--namespace", SYSTEM, "--create-namespace",
        "--wait", "--timeout", "4m", *(f"--set={key}={value}" for key, value in values.items()),
    )  # fmt: skip
    # those of an earlier run on this cluster have the same names
    cluster.delete("CodeExecution", *cluster.names("CodeExecution"))
    for pool, runtime in runtimes.items():
        cluster.apply(pool_manifest(name=pool, runtime=runtime, image=values["pool.image"], warm=2))
    for pool in ["default", *runtimes]:
        cluster.wait_for("Ready", "SandboxPool", pool, seconds=120)
    return cluster


@pytest.fixture(scope="session")
def api_key(installed: Cluster) -> str:
    """The initial API key, without limits: the tests send more than it should."""
    secret = installed.get("Secret", f"{RELEASE}-initial-api-key", namespace=SYSTEM)
    key = base64.b64decode(secret["data"]["api-key"]).decode()
    entry = json.dumps({"sha256": hashlib.sha256(key.encode()).hexdigest(), "namespace": NAMESPACE})
    data = {"initial": base64.b64encode(entry.encode()).decode()}
    installed.merge("Secret", f"{RELEASE}-api-keys", {"data": data}, namespace=SYSTEM)
    return key


@pytest.fixture(scope="session")
def url(installed: Cluster, provider: Provider) -> Iterator[str]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_EXEC_PLAIN_HTTP", "yes")  # the packets do not leave this machine
        yield gateway_url(cluster=installed, provider=provider, stack=stack)


@pytest.fixture(scope="session")
def gateway(url: str, api_key: str) -> Iterator[Gateway]:
    headers = {"Authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=paced(120), trust_env=False) as client:
        yield Gateway(client=client)


@pytest.fixture(params=["runc", "gvisor"])
def pool(request: pytest.FixtureRequest, cluster: Cluster, provider: Provider, runtimes: dict[str, str | None]) -> str:
    """A pool of each runtime that the cluster has."""
    if request.param not in runtimes:
        require_gvisor(cluster, provider)
    return str(request.param)


@pytest.fixture
def make_pool(installed: Cluster) -> Iterator[MakePool]:
    """Makes pools that are gone after the test."""
    made = []
    image = installed.get("SandboxPool", "runc")["spec"]["image"]

    def make(name: str, *, warm: int = 1, **spec: Any) -> dict[str, Any]:
        made.append(name)
        manifest = pool_manifest(name=name, runtime=spec.pop("runtimeClassName", None), image=image, warm=warm)
        manifest["spec"] |= spec
        installed.apply(manifest)
        return manifest

    yield make
    for name in made:
        installed.delete("SandboxPool", name)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """With E2E_DUMP set, a failure is followed by what the cluster's components said."""
    if not report.failed or "E2E_DUMP" not in os.environ:
        return
    for component in ("operator", "gateway", "broker"):
        done = subprocess.run(
            ["kubectl", "logs", "-n", SYSTEM, "-l", f"app.kubernetes.io/component={component}", "--tail=60"],
            capture_output=True, text=True, timeout=paced(20), check=False,
        )  # fmt: skip
        report.sections.append((f"logs of the {component}", done.stdout + done.stderr))
    done = subprocess.run(
        ["kubectl", "get", "cex,sbp,pods", "-n", NAMESPACE],
        capture_output=True,
        text=True,
        timeout=paced(20),
        check=False,
    )
    report.sections.append(("objects", json.dumps(done.stdout)))
