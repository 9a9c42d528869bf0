"""The API server itself refuses bad objects, and says which field is wrong."""

from typing import Any

import pytest

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
    assert "Source of a program" in installed.kubectl("explain", "cex.spec.code")


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
