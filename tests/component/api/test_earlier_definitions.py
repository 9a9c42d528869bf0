"""Definitions of an earlier release on a real API server: all stays as it is, and the way out is named."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

import pytest
from tests.support.control_plane import ControlPlane, running_control_plane
from tests.support.pace import paced
from tests.support.until import eventually

from mcp_exec_api.constants import GROUP
from mcp_exec_api.crd_schema import build_definitions

Object = dict[str, Any]
KINDS: Final = sorted(f"{plural}.{GROUP}" for plural in build_definitions())
PROBLEM: Final = (
    "the CustomResourceDefinitions are of an earlier release, whose stored version v1alpha1 the API server can't remove"
)
REMEDY: Final = (
    "delete these definitions, and with them all their objects in all namespaces: `kubectl delete crd "
    f"{' '.join(KINDS)}`"
)
BETA: Final = ("codeexecutions", "sandboxpools", "toolservers")


def build_earlier(plural: str) -> Object:
    """Return a definition that stores v1alpha1; some kinds are served in v1beta1, too."""
    definition = deepcopy(build_definitions()[plural])
    (version,) = definition["spec"]["versions"]
    beta = [version | {"storage": False}] if plural in BETA else []
    definition["spec"]["versions"] = [version | {"name": "v1alpha1"}, *beta]
    return definition


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with running_control_plane(tmp_path_factory.mktemp("plane") / "it") as plane:
        earlier = {"apiVersion": "v1", "kind": "List", "items": [*map(build_earlier, build_definitions())]}
        applied = plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(earlier))
        assert applied.returncode == 0, applied.stderr
        pool = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "SandboxPool", "metadata": {"name": "kept"}}
        pool |= {"spec": {"image": "i", "maxPods": 9}}
        eventually(lambda: plane.kubectl("apply", "-f", "-", input=json.dumps(pool)).returncode == 0)
        yield plane


def read(plane: ControlPlane) -> dict[str, str]:
    """Return what is stored: definitions and pools with their versions in etcd."""
    read = plane.kubectl("get", "customresourcedefinitions,sandboxpools", "-o", "json")
    assert read.returncode == 0, read.stderr
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in json.loads(read.stdout)["items"]}


def run(plane: ControlPlane, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the release as the administrator."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        env=os.environ | {"MCP_EXEC_KUBECONFIG": str(plane.kubeconfig)} | variables,
        capture_output=True, text=True, check=False, timeout=paced(60),
    )  # fmt: skip


def start_operator(plane: ControlPlane, *, upgrades: bool) -> subprocess.CompletedProcess[str]:
    """Start an operator, which ends: there is no sandbox key."""
    return run(
        plane,
        "mcp_exec_operator",
        MCP_EXEC_RELEASE_NAMESPACE="mcp-exec-system",
        MCP_EXEC_NAMESPACES="agents",
        MCP_EXEC_SANDBOX_KEY_SECRET="none",
        MCP_EXEC_UPGRADE_CRDS=str(upgrades),
        MCP_EXEC_API_WAIT_SECONDS="5",
    )


@pytest.mark.parametrize("upgrades", [True, False])
def test_the_operator_changes_nothing_and_names_what_to_delete(plane: ControlPlane, upgrades: bool) -> None:
    before = read(plane)
    ended = start_operator(plane, upgrades=upgrades)
    assert (ended.returncode, f"{PROBLEM}: {REMEDY}" in ended.stderr) == (1, True), ended.stderr
    assert before == read(plane)
    assert {*KINDS, "kept"} <= before.keys()


def test_doctor_names_what_to_delete(plane: ControlPlane) -> None:
    ended = run(plane, "mcp_exec_client", "doctor", "--kubeconfig", str(plane.kubeconfig), "--namespace", "default")
    assert ended.returncode == 1
    (line,) = [line for line in ended.stdout.splitlines() if " definitions: " in line]
    assert line == f"problem  definitions: {PROBLEM} -> {REMEDY}"


def test_after_that_command_the_operator_creates_the_definitions_of_the_release(plane: ControlPlane) -> None:
    deleted = plane.kubectl(*REMEDY.split("`")[1].split()[1:])
    assert deleted.returncode == 0, deleted.stderr
    eventually(lambda: "the sandbox key" in start_operator(plane, upgrades=True).stderr or None)
    assert read(plane).keys() == {*KINDS}
