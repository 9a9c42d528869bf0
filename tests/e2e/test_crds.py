"""The API server itself refuses bad objects, and says which field is wrong."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.objects import JSON_PATCH
from tests.e2e.support import NAMESPACE, Cluster, execution_manifest, pool_manifest
from tests.support.until import eventually


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.code"),
        ({"code": ""}, "spec.code"),
        ({"code": "1", "skillRef": {"name": "a"}}, "spec"),
        ({"code": "1", "timeoutSeconds": 3601}, "spec.timeoutSeconds"),
        ({"code": "1", "timeoutSeconds": "soon"}, "spec.timeoutSeconds"),
        ({"code": "1", "limits": {"outputBytes": 1}}, "spec.limits.outputBytes"),
        ({"code": "1", "poolRef": {"name": "No Name"}}, "spec.poolRef.name"),
        ({"code": "1", "context": []}, "spec.context"),
        ({"code": "x" * 262_145}, "spec.code"),
    ],
)
def test_a_bad_execution_is_refused_by_the_name_of_its_field(
    installed: Cluster, spec: dict[str, Any], field: str
) -> None:
    assert field in installed.refusal(execution_manifest(name="bad", **spec))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"onEmpty": "Panic"}, "spec.onEmpty"),
        ({"maxTimeoutSeconds": 3601}, "spec.maxTimeoutSeconds"),
        ({"resources": {"limits": {"memory": "lots"}}}, "spec.resources.limits.memory"),
        ({"maxProcesses": 1}, "spec.maxProcesses"),
        ({"workspaceSize": "-1"}, "spec.workspaceSize"),
    ],
)
def test_a_bad_pool_is_refused_by_the_name_of_its_field(installed: Cluster, spec: dict[str, Any], field: str) -> None:
    assert field in installed.refusal(pool_manifest(name="bad", runtime=None, image="i", warm=1, **spec))


def test_kubectl_shows_what_ran_and_explains_every_field(installed: Cluster, pool: str) -> None:
    name = f"columns-{pool}"
    installed.delete("CodeExecution", name)
    installed.execute(name=name, code="1 / 0", poolRef={"name": pool})
    header, row = installed.kubectl("get", "codeexecutions", name, "-n", NAMESPACE).splitlines()
    assert header.split() == ["NAME", "PHASE", "REASON", "POOL", "START", "DURATION", "TOOLS", "SPEC", "AGE"]
    assert row.split()[:4] == [name, "Failed", "UserError", pool]
    assert "Python source" in installed.kubectl("explain", "cex.spec.code")


def test_what_stands_in_a_namespace_that_is_not_served_says_so(installed: Cluster) -> None:
    image = installed.get("SandboxPool", "runc")["spec"]["image"]
    pool = pool_manifest(name="unserved", runtime=None, image=image, warm=0)
    pool["metadata"]["namespace"] = "default"
    server = {**pool, "kind": "ToolServer", "spec": {"url": "http://127.0.0.1:9/mcp"}}
    installed.apply(pool, server, execution_manifest(name="unserved", namespace="default", code="1"))
    try:
        for kind in ("cex", "sbp", "ts"):
            assert " NotObserved " in installed.kubectl("get", kind, "unserved", "-n", "default"), kind
    finally:
        for kind in ("CodeExecution", "SandboxPool", "ToolServer"):
            installed.delete(kind, "unserved", namespace="default")


def test_a_pool_can_be_scaled_by_kubectl(installed: Cluster) -> None:
    image = installed.get("SandboxPool", "runc")["spec"]["image"]
    installed.apply(pool_manifest(name="scaled", runtime=None, image=image, warm=0))
    try:
        installed.kubectl("scale", "sbp/scaled", "-n", NAMESPACE, "--replicas=1")

        def counts() -> tuple[int, int, int]:
            status = installed.get("SandboxPool", "scaled").get("status", {})
            return status.get("warm"), status.get("desired"), status.get("replicas")

        eventually(lambda: counts() == (1, 1, 1), seconds=60, what="one pod is warm")
    finally:
        installed.delete("SandboxPool", "scaled")


@pytest.fixture
def beta_objects(installed: Cluster, pool: str) -> Iterator[dict[str, dict[str, Any]]]:
    """An execution, a pool and a tool server, created in the newer version; by the plural of their kind."""
    image = installed.get("SandboxPool", "runc")["spec"]["image"]
    made = pool_manifest(name="beta", runtime=None, image=image, warm=0)
    objects = {
        "codeexecutions": execution_manifest(name="beta", code="print('beta')", poolRef={"name": pool}),
        "sandboxpools": made,
        "toolservers": {**made, "kind": "ToolServer", "spec": {"url": "http://127.0.0.1:9/mcp"}},
    }
    for manifest in objects.values():
        installed.kubectl("apply", "-f", "-", stdin=json.dumps({**manifest, "apiVersion": "mcp-exec.dev/v1beta1"}))
    yield objects
    for manifest in objects.values():
        installed.delete(manifest["kind"], "beta")


def read(cluster: Cluster, plural: str, version: str) -> dict[str, Any]:
    resource = f"{plural}.{version}.mcp-exec.dev"
    found: dict[str, Any] = json.loads(cluster.kubectl("get", resource, "beta", "-n", NAMESPACE, "-o", "json"))
    return found


def test_an_object_is_the_same_in_both_versions_and_runs(
    installed: Cluster, beta_objects: dict[str, dict[str, Any]]
) -> None:
    assert installed.finished("beta")["output"]["stdout"] == "beta\n"
    for plural, manifest in beta_objects.items():
        one, other = (read(installed, plural, version) for version in ("v1alpha1", "v1beta1"))
        assert (one["apiVersion"], other["apiVersion"]) == ("mcp-exec.dev/v1alpha1", "mcp-exec.dev/v1beta1")
        assert one["spec"] == other["spec"]
        assert one["spec"].keys() >= manifest["spec"].keys()
        tables = [
            installed.kubectl("get", f"{plural}.{version}.mcp-exec.dev", "-n", NAMESPACE).split()[:6]
            for version in ("v1alpha1", "v1beta1")
        ]
        assert tables[0] == tables[1]


def test_stored_objects_move_to_another_version_and_back(
    installed: Cluster, beta_objects: dict[str, dict[str, Any]]
) -> None:
    """As docs/platform/versions.md says, with one kind."""
    name = "toolservers.mcp-exec.dev"

    def move(stored: str) -> None:
        versions = installed.get("CustomResourceDefinition", name)["spec"]["versions"]
        storage = [
            {"op": "replace", "path": f"/spec/versions/{number}/storage", "value": version["name"] == stored}
            for number, version in enumerate(versions)
        ]
        installed.objects.patch("CustomResourceDefinition", name, storage, namespace=None, way=JSON_PATCH)
        assert stored in installed.get("CustomResourceDefinition", name)["status"]["storedVersions"]
        listed = installed.kubectl("get", "toolservers", "-A", "-o", "json")
        installed.kubectl("replace", "-f", "-", stdin=listed)
        change = json.dumps({"status": {"storedVersions": [stored]}})
        installed.kubectl("patch", "crd", name, "--subresource=status", "--type=merge", "-p", change)
        assert installed.get("CustomResourceDefinition", name)["status"]["storedVersions"] == [stored]

    try:
        move("v1beta1")
        assert read(installed, "toolservers", "v1alpha1")["spec"] == read(installed, "toolservers", "v1beta1")["spec"]
    finally:
        move("v1alpha1")
