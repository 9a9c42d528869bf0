"""Who may write the claim of a namespace, by the roles and policies of the chart on a real API server."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.component.chart.conftest import Object, Render
from tests.support.control_plane import ControlPlane, running_control_plane
from tests.support.until import eventually

from mcp_exec_api.meta import now
from mcp_exec_common.kube.events import build_event

OPERATOR = "system:serviceaccount:mcp-exec-system:mcp-exec-operator"
EDITOR, ADMINISTRATOR = "editor", "the-administrator"
KINDS = {"Namespace", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
         "ValidatingAdmissionPolicyBinding"}  # fmt: skip
LEASES = "/apis/coordination.k8s.io/v1/namespaces/agents/leases"


def build_lease(name: str) -> Object:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, helm3: Render) -> Iterator[ControlPlane]:
    rendered = helm3({"admissionPolicy": {"enabled": True}}, "--kube-version", "1.36.0")
    objects = [each for each in rendered.objects if each["kind"] in KINDS]
    with running_control_plane(tmp_path_factory.mktemp("plane"), controllers=True) as made:
        made.kubectl("create", "namespace", "mcp-exec-system")
        for wave in (["Namespace"], sorted(KINDS - {"Namespace"})):
            items = [each for each in objects if each["kind"] in wave]
            body: Object = {"apiVersion": "v1", "kind": "List", "items": items}
            applied = made.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(body))
            assert applied.returncode == 0, applied.stderr
        made.kubectl("label", "namespace", "agents", "mcp-exec.dev/release-")
        for role, user in (("edit", EDITOR), ("admin", "admin")):
            made.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}", "-n", "agents")
        made.kubectl("create", "clusterrolebinding", "it", "--clusterrole=cluster-admin", f"--user={ADMINISTRATOR}")
        yield made


def ask(plane: ControlPlane, user: str, method: str, name: str = "", **options: Any) -> httpx.Response:
    path = f"{LEASES}/{name}" if name else LEASES
    with plane.connect() as client:
        return client.request(method, path, headers={"Impersonate-User": user}, **options)


def is_refused(answer: httpx.Response) -> bool:
    return answer.status_code == 403 and "only the operators of releases may write" in answer.text


def test_only_operators_and_administrators_write_or_delete_the_claim(plane: ControlPlane) -> None:
    def create(user: str, name: str = "mcp-exec") -> httpx.Response:
        return ask(plane, user, "POST", json=build_lease(name), params={"dryRun": "All"})

    eventually(lambda: is_refused(create(EDITOR)), seconds=60, every=0.2, what="the policy is enforced")
    assert create(EDITOR, "another").status_code == 201
    assert create(OPERATOR).status_code == 201
    claim = ask(plane, OPERATOR, "POST", json=build_lease("mcp-exec")).json()
    for user in (EDITOR, "admin"):
        assert is_refused(ask(plane, user, "PUT", "mcp-exec", json=claim))
        assert is_refused(ask(plane, user, "DELETE", "mcp-exec"))
        assert is_refused(ask(plane, user, "DELETE")), "a deletion of the whole collection"
    for user in (OPERATOR, ADMINISTRATOR):
        assert ask(plane, user, "PUT", "mcp-exec", json=claim, params={"dryRun": "All"}).status_code == 200
        assert ask(plane, user, "DELETE", "mcp-exec", params={"dryRun": "All"}).status_code == 200


def test_an_operator_may_report_in_the_namespace_that_it_does_not_serve_it(plane: ControlPlane) -> None:
    event = build_event(
        "Namespace",
        key=("agents", "agents"),
        uid="",
        kind="Warning",
        reason="NamespaceTaken",
        message="so",
        moment=now(),
        api_version="v1",
    )
    with plane.connect() as client:
        headers = {"Impersonate-User": OPERATOR}
        answer = client.post("/api/v1/namespaces/agents/events", json=event, headers=headers)
    assert answer.status_code == 201, answer.text


def test_a_namespace_with_a_claim_can_be_deleted(plane: ControlPlane) -> None:
    ask(plane, OPERATOR, "POST", json=build_lease("mcp-exec"))
    deleted = plane.kubectl("delete", "namespace", "agents", "--timeout=60s", user=ADMINISTRATOR)
    assert deleted.returncode == 0, deleted.stderr
