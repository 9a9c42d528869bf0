"""An administrator installs the chart for the cluster; who administers two namespaces installs the rest."""

import os
from collections.abc import Iterator

import pytest

from tests.e2e.support import ROOT, Cluster, execution_manifest
from tests.support.until import eventually

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
RELEASE, SYSTEM, SERVED = "divided", "divided-system", "divided"
INSTALLER = "installer"
VALUES = {
    "namespaces[0]": SERVED,
    "aggregateRoles": "true",
    "broker.enabled": "false",
    "operator.replicas": "1",
    "gateway.replicas": "1",
    "pool.image": os.environ.get("SANDBOX_IMAGE", "localhost/mcp-exec-sandbox:dev"),
    "pool.warm.min": "1",
    "pool.runtimeClassName": "NodeDefault",
    "images.tag": os.environ.get("TAG", "dev"),
    "operator.image.repository": os.environ.get("OPERATOR_IMAGE", "localhost/mcp-exec-operator"),
    "gateway.image.repository": os.environ.get("GATEWAY_IMAGE", "localhost/mcp-exec-gateway"),
}
OPTIONS = [f"--set={name}={value}" for name, value in VALUES.items()]


def uninstall(cluster: Cluster) -> None:
    for name in (RELEASE, f"{RELEASE}-cluster"):
        cluster.run("helm", "uninstall", name, "--namespace", SYSTEM, check=False)
    cluster.delete("Namespace", SYSTEM, SERVED, namespace=None, wait=False)


@pytest.fixture
def prepared(installed: Cluster) -> Iterator[Cluster]:
    """A cluster with the administrator's part, and the role `admin` of the installer in both namespaces."""
    uninstall(installed)
    installed.delete("Namespace", SYSTEM, SERVED, namespace=None, seconds=420)
    installed.helm(
        "install", f"{RELEASE}-cluster", str(ROOT / "charts/mcp-exec-cluster"), "--namespace", SYSTEM,
        "--create-namespace", *OPTIONS,
    )  # fmt: skip
    for namespace in (SYSTEM, SERVED):
        installed.kubectl(
            "create", "rolebinding", INSTALLER, "--clusterrole=admin", f"--user={INSTALLER}", "-n", namespace
        )
    yield installed
    uninstall(installed)


def test_who_administers_two_namespaces_can_install_and_run_code(prepared: Cluster) -> None:
    command = ["helm", "install", RELEASE, str(ROOT / "charts/mcp-exec"), "--namespace", SYSTEM, *OPTIONS]
    command += ["--kube-as-user", INSTALLER, "--skip-crds", *prepared.helm_options]
    refused = prepared.run(*command, check=False)
    assert refused.returncode != 0
    # of the objects in the cluster, which the administrator's release owns, or which the installer may not create
    assert "forbidden" in refused.stderr or "invalid ownership" in refused.stderr, refused.stderr
    prepared.run("helm", "uninstall", RELEASE, "--namespace", SYSTEM, "--no-hooks", check=False)
    prepared.run(*command, "--set=clusterObjects.create=false", "--wait", "--timeout", "4m")
    prepared.wait_for("Ready", "SandboxPool", "default", namespace=SERVED, seconds=180)
    prepared.apply(execution_manifest(name="divided", namespace=SERVED, code="print(1)"))

    def phase() -> str:
        return str(prepared.get("CodeExecution", "divided", namespace=SERVED).get("status", {}).get("phase"))

    eventually(lambda: phase() == "Succeeded", seconds=60, every=0.5, what="the code has run")
