"""A second release that names a namespace of the first: it runs nothing, says so, and the first goes on."""

import os
from collections.abc import Iterator

import pytest

from tests.e2e.support import NAMESPACE, RELEASE, ROOT, SYSTEM, Cluster, Gateway
from tests.support.until import eventually

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
SECOND, SECOND_SYSTEM = "neighbour", "neighbour-system"
OPERATOR = f"{SECOND}-mcp-exec-operator"


@pytest.fixture
def neighbour(installed: Cluster) -> Iterator[Cluster]:
    values = {
        "namespaces[0]": NAMESPACE,
        "createNamespaces": "false",
        "pool.enabled": "false",
        "broker.enabled": "false",
        "operator.replicas": "1",
        "gateway.replicas": "1",
        "images.tag": os.environ.get("TAG", "dev"),
        "operator.image.repository": os.environ.get("OPERATOR_IMAGE", "localhost/mcp-exec-operator"),
        "gateway.image.repository": os.environ.get("GATEWAY_IMAGE", "localhost/mcp-exec-gateway"),
    }
    installed.run("helm", "uninstall", SECOND, "--namespace", SECOND_SYSTEM, check=False)
    installed.helm(  # without --wait: its operator is not ready while it serves no namespace
        "install", SECOND, str(ROOT / "charts/mcp-exec"), "--namespace", SECOND_SYSTEM, "--create-namespace",
        *(f"--set={name}={value}" for name, value in values.items()),
    )  # fmt: skip
    yield installed
    installed.run("helm", "uninstall", SECOND, "--namespace", SECOND_SYSTEM, check=False)
    installed.delete("Namespace", SECOND_SYSTEM, namespace=None, wait=False)


def test_a_namespace_that_two_releases_name_stays_with_the_first(neighbour: Cluster, gateway: Gateway) -> None:
    def read_log() -> str:
        labels = f"app.kubernetes.io/instance={SECOND},app.kubernetes.io/component=operator"
        # it fails while no container has started
        return neighbour.run("kubectl", "logs", "-n", SECOND_SYSTEM, "-l", labels, check=False).stdout

    owner = f"its label mcp-exec.dev/release names the release {SYSTEM}.{RELEASE}"
    wanted = f"namespace {NAMESPACE} is not served, nothing runs in it: {owner}"
    eventually(lambda: wanted in read_log(), seconds=180, every=1, what="the second operator refuses the namespace")
    assert gateway.run("print(1)")["phase"] == "Succeeded"
    before = neighbour.names("Pod", labels="app.kubernetes.io/name=mcp-exec-sandbox,mcp-exec.dev/state=warm")
    neighbour.run("helm", "uninstall", SECOND, "--namespace", SECOND_SYSTEM)
    assert before & neighbour.names("Pod", labels="app.kubernetes.io/name=mcp-exec-sandbox")
    assert gateway.run("print(2)")["phase"] == "Succeeded"
