"""Whose objects are that an account of Kubernetes creates past the gateway: a real API server with the policies.

Each account has every right, so that only the policies refuse.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.component.chart.conftest import ROOT, Object, Render
from tests.support.control_plane import ControlPlane, running_control_plane
from tests.support.until import eventually

from mcp_exec_api.constants import ANNOTATION_CREATED_BY, API_VERSION

ALICE, BOB, ANYBODY = "alice@example.com", "bob@example.com", "system:serviceaccount:agents:default"
GATEWAY, OPERATOR = (f"system:serviceaccount:mcp-exec-system:mcp-exec-{name}" for name in ("gateway", "operator"))
COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
KINDS: dict[str, tuple[str, Object]] = {
    "codeexecutions": ("CodeExecution", {"code": "print(1)"}),
    "sandboxsessions": ("SandboxSession", {"maxQueued": 4}),
    "skills": ("Skill", {"name": "notes", "version": 1, "description": "d", "code": "def run(): ..."}),
}
NAMES = {"skills": "notes-v1"}
STATED = "the annotation mcp-exec.dev/created-by must be your own username or missing, and cannot be changed"
HELD = "only mcp-exec and Kubernetes may add metadata.finalizers"
OWNED = "only mcp-exec and Kubernetes may set, change or remove metadata.ownerReferences"
FINALIZERS = {"finalizers": ["example.com/held"]}
OWNERS = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "0"}]}

pytestmark = pytest.mark.timeout(400)  # for the start of the API server on a busy machine

Send = Callable[..., httpx.Response]


def manifest(plural: str, **metadata: Any) -> Object:
    kind, spec = KINDS[plural]
    named = {"name": NAMES.get(plural, "notes"), "namespace": "agents"}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": named | metadata, "spec": spec}


def account(value: Object) -> str | None:
    found = (value["metadata"].get("annotations") or {}).get(ANNOTATION_CREATED_BY)
    return None if found is None else str(found)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, helm3: Render) -> Iterator[ControlPlane]:
    rendered = helm3({"namespaces": ["agents"]}, "--kube-version", "1.36.0")
    policies = [each for each in rendered.objects if each["apiVersion"] == "admissionregistration.k8s.io/v1"]
    with running_control_plane(Path(tmp_path_factory.mktemp("plane")) / "data") as plane:
        for arguments, text in (
            (("apply", "--server-side", "-f", str(ROOT / "crds")), ""),
            (("create", "namespace", "agents"), ""),
            (("apply", "--server-side", "-f", "-"), yaml.safe_dump_all(policies)),
        ):
            ended = plane.kubectl(*arguments, input=text)
            assert ended.returncode == 0, ended.stderr
        with plane.connect() as client:
            send = sender(client)

            def are_enforced() -> bool:
                created = send("POST", "skills", manifest("skills"), dry=True)
                refused = send("POST", "skills", manifest("skills", **FINALIZERS), dry=True)
                return created.is_success and account(created.json()) == ALICE and HELD in refused.text

            eventually(are_enforced, seconds=60, what="the policies are enforced")
        yield plane


def sender(client: httpx.Client) -> Send:
    def send(verb: str, plural: str, body: Object, *, user: str = ALICE, name: str = "", dry: bool = False) -> Any:
        headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        if verb == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        path = f"/apis/{API_VERSION}/namespaces/agents/{plural}" + (f"/{name}" if name else "")
        return client.request(verb, path, json=body, params={"dryRun": "All"} if dry else {}, headers=headers)

    return send


@pytest.fixture
def send(plane: ControlPlane) -> Iterator[Send]:
    with plane.connect() as client:
        made = sender(client)
        yield made
        for plural in KINDS:
            made("DELETE", plural, {}, name=NAMES.get(plural, "notes"))


@pytest.mark.parametrize("server_side", [False, True], ids=["client", "server"])
def test_what_kubectl_applies_belongs_to_the_account_that_applied_it_first(
    plane: ControlPlane, send: Send, server_side: bool
) -> None:
    rights = ("create", "clusterrolebinding", "everybody", "--clusterrole=cluster-admin")
    plane.kubectl(*rights, f"--user={ALICE}", f"--user={BOB}")
    options = ("--server-side", "--force-conflicts") if server_side else ()
    changes: list[tuple[str, Object]] = [(ALICE, {}), (ALICE, {}), (ALICE, {"labels": {"a": "b"}}), (BOB, {})]
    for user, metadata in changes:
        text = yaml.safe_dump(manifest("codeexecutions", **metadata))
        ended = plane.kubectl("apply", *options, "-f", "-", input=text, user=user)
        assert ended.returncode == 0, ended.stderr
        assert account(send("GET", "codeexecutions", {}, name="notes").json()) == ALICE
    replaced = plane.kubectl("replace", "-f", "-", input=yaml.safe_dump(manifest("codeexecutions")), user=ALICE)
    assert replaced.returncode == 0, replaced.stderr
    assert account(send("GET", "codeexecutions", {}, name="notes").json()) == ALICE


@pytest.mark.parametrize("plural", KINDS)
def test_nobody_states_another_account(send: Send, plural: str) -> None:
    name = NAMES.get(plural, "notes")
    for user in (ALICE, ANYBODY):
        forged = send("POST", plural, manifest(plural, annotations={ANNOTATION_CREATED_BY: BOB}), user=user, dry=True)
        assert STATED in forged.text
        own = send("POST", plural, manifest(plural, annotations={ANNOTATION_CREATED_BY: user}), user=user, dry=True)
        assert account(own.json()) == user
    assert account(send("POST", plural, manifest(plural, annotations={"note": "x"})).json()) == ALICE
    for user, value in ((BOB, BOB), (ALICE, BOB), (BOB, "")):
        changed = send(
            "PATCH", plural, {"metadata": {"annotations": {ANNOTATION_CREATED_BY: value}}}, user=user, name=name
        )
        assert STATED in changed.text
    removed = send("PATCH", plural, {"metadata": {"annotations": None}}, user=BOB, name=name)
    assert account(removed.json()) == ALICE


@pytest.mark.parametrize("plural", KINDS)
def test_the_release_is_no_creator_and_may_name_one(send: Send, plural: str) -> None:
    for user in (GATEWAY, OPERATOR):
        assert account(send("POST", plural, manifest(plural), user=user, dry=True).json()) is None
        named = send("POST", plural, manifest(plural, annotations={ANNOTATION_CREATED_BY: BOB}), user=user, dry=True)
        assert account(named.json()) == BOB


@pytest.mark.parametrize(("metadata", "said"), [(FINALIZERS, HELD), (OWNERS, OWNED)], ids=["finalizers", "owners"])
@pytest.mark.parametrize("plural", KINDS)
def test_no_caller_keeps_an_object_for_ever_or_has_the_garbage_collector_delete_it(
    send: Send, plural: str, metadata: Object, said: str
) -> None:
    name = NAMES.get(plural, "notes")
    assert said in send("POST", plural, manifest(plural, **metadata), dry=True).text
    assert send("POST", plural, manifest(plural)).is_success
    for user in (ALICE, BOB, ANYBODY):
        assert said in send("PATCH", plural, {"metadata": metadata}, user=user, name=name, dry=True).text
    for user in (GATEWAY, OPERATOR, COLLECTOR, "system:kube-controller-manager"):
        assert send("PATCH", plural, {"metadata": metadata}, user=user, name=name, dry=True).is_success
    assert send("PATCH", plural, {"metadata": {"labels": {"a": "b"}}}, name=name).is_success


def test_an_administrator_frees_an_object_of_a_finalizer(send: Send) -> None:
    """It is from before the policies, or of a controller that is gone."""
    assert send("POST", "codeexecutions", manifest("codeexecutions", **FINALIZERS), user=GATEWAY).is_success
    assert send("PATCH", "codeexecutions", {"metadata": {"finalizers": None}}, name="notes").is_success
