"""A served namespace on a real API server, with accounts of each role that tenants get."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest
import yaml
from hack.accounts.rights import INCLUDED
from tests.component.accounts.objects import (
    NAMESPACE,
    SYSTEM,
    make_claim,
    make_execution,
    make_sandboxes,
    make_stdio,
)
from tests.component.accounts.samples import list_stored
from tests.component.accounts.server import Object, Server
from tests.support.control_plane import ROOT, running_control_plane
from tests.support.pace import paced
from tests.support.until import eventually

CHART: Final = ROOT / "charts" / "mcp-exec"
OWNER: Final = "owner@example.com"
"""An account with the roles `edit` and `mcp-exec-manager`."""
_SECONDS: Final = paced(60)
_NOT_APPLIED: Final = {"Deployment", "Job", "Pod", "ResourceQuota", "PersistentVolumeClaim", "CustomResourceDefinition"}
"""Kinds of the chart that the namespace does not need: no tenant may write a quota, and there are no nodes."""
_CANARY: Final = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: canary}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  validations: [{expression: "object.metadata.name != 'canary'"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: canary}
spec: {policyName: canary, validationActions: [Deny]}
"""
"""A policy that is applied last: when it is enforced, the others are."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The API server, whose only served namespace has all objects that rows are about."""
    folder = tmp_path_factory.mktemp("plane")
    with running_control_plane(folder / "it", controllers=True) as plane, plane.connect() as client:
        made = Server(client=client)
        _install(made)
        for role in INCLUDED:
            _bind(made, role, account(role))
        for role in ("edit", "mcp-exec-manager"):
            _bind(made, role, OWNER)
        for make in (make_sandboxes, make_stdio, make_claim, make_execution):
            make(made)
        for item in list_stored():
            made.create(item)
        yield made


def account(role: str) -> str:
    """Return the user who has a role in the namespace."""
    return f"{role}@example.com"


def _install(server: Server) -> None:
    """Apply the chart and wait for its policies."""
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((CHART / "crds").glob("*.yaml"))]
    for item in definitions:
        server.apply(item)
    version = server.send("GET", "/version")["gitVersion"]
    admission = "admissionregistration.k8s.io/v1"
    rendered = _render(
        f"--kube-version={version}", *(f"--api-versions={admission}/{kind}" for kind in server.list_kinds(admission))
    )
    server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    gvisor = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"},
        "handler": "runsc",
    }
    server.apply(gvisor)
    for kind in ("Namespace", "ServiceAccount"):
        for item in rendered:
            if item["kind"] == kind:
                server.apply(item)
    eventually(lambda: server.request("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default").is_success)
    eventually(
        lambda: (
            {each["spec"]["names"]["kind"] for each in definitions} <= server.list_kinds("mcp-exec.dev/v1beta1").keys()
        ),
        what="definitions are served",
    )
    for item in rendered:
        if item["kind"] not in _NOT_APPLIED:
            server.apply(item)
    for item in yaml.safe_load_all(_CANARY):
        server.apply(item)
    canary = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "canary"}}
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    eventually(lambda: server.request("POST", path, canary, dryRun="All").is_error, what="policies are enforced")


def _render(*options: str) -> list[Object]:
    folder = subprocess.run([ROOT / "hack" / "tools"], capture_output=True, text=True, check=True, timeout=_SECONDS)
    helm = shutil.which("helm", path=f"{os.environ['PATH']}{os.pathsep}{folder.stdout.strip()}")
    assert helm, "hack/tools installed no helm"
    done = subprocess.run(
        [helm, "template", "mcp-exec", str(CHART), "--namespace", SYSTEM, "--no-hooks", *options],
        capture_output=True, text=True, timeout=_SECONDS, check=True,
    )  # fmt: skip
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def _bind(server: Server, role: str, user: str) -> None:
    group = "rbac.authorization.k8s.io"
    server.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{user.partition('@')[0]}-{role}", "namespace": NAMESPACE},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
        }
    )
