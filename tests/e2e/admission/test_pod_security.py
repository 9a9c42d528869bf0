"""Pod Security admission at its level `restricted`, in the release's namespace and in a served one."""

from typing import Any

import pytest

from tests.e2e.support import NAMESPACE, SYSTEM, Cluster


def pod(name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize("namespace", [SYSTEM, NAMESPACE])
def test_a_pod_that_keeps_its_privileges_is_refused(installed: Cluster, namespace: str) -> None:
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "main", "image": "none.invalid/none:1"}]}
    assert 'violates PodSecurity "restricted:latest"' in installed.refusal(pod("privileged", namespace, spec))


def test_every_pod_of_the_release_is_admitted(installed: Cluster) -> None:
    """Copies, because the namespace may be older than its label."""
    running = installed.select("Pod", namespace=SYSTEM, labels="app.kubernetes.io/name=mcp-exec")
    components = {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in running}
    assert {"operator", "gateway", "broker"} <= components
    for each in running:
        spec = {name: value for name, value in each["spec"].items() if name != "nodeName"}
        copy = pod(f"copy-{each['metadata']['uid']}", SYSTEM, spec)
        assert installed.objects.create(copy, dry_run=True)["spec"]["containers"]
