"""What the account of a served namespace may not do to what the operator made there, on a real API server.

Its roles are Kubernetes' own `edit` and `admin`. The API server has no nodes; its controllers run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
import yaml
from tests.component.chart.conftest import CHART, Render
from tests.support.control_plane import ControlPlane, running_control_plane
from tests.support.until import eventually

from mcp_exec_api.constants import ANNOTATION_RELEASE_VERSION, API_VERSION, GROUP
from mcp_exec_api.crd_schema import build_definitions
from mcp_exec_api.tool_server import Stdio
from mcp_exec_api.wire.version import RELEASE
from mcp_exec_operator.core.pods.manifest import PoolIdentity
from mcp_exec_operator.core.pods.network_policy import (
    ReleasePods,
    build_base_policy,
    build_namespace_policy,
    build_policy,
)
from mcp_exec_operator.features.tools.manifests import (
    BridgeImage,
    ServerIdentity,
    build_deployment,
    build_server_policy,
    workload_labels,
)

pytestmark = pytest.mark.timeout(300)

Object = dict[str, Any]
NAMESPACE, SYSTEM = "agents", "mcp-exec-system"
OPERATOR, CLEANUP = (f"system:serviceaccount:{SYSTEM}:mcp-exec-{name}" for name in ("operator", "cleanup"))
TENANT, OWNER, INSTALLER, POLICIES_OF_ALL = "tenant", "owner", "installer", "eks:network-policy-controller"
KUBERNETES: Final = "system:serviceaccount:kube-system:"
RELEASE_PODS: Final = ReleasePods(namespace=SYSTEM, instance="mcp-exec")
OWNED: Final = "only the operator, Kubernetes and administrators may write"
SERVER_PODS: Final = "only the operator's Deployments may have pods with the labels of a stdio server"
OPENS: Final = "this NetworkPolicy could open sandboxes or stdio servers"
DEFINITIONS: Final = "the operator may write only its own definitions"
KINDS: Final = {
    "Namespace", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
"""Objects of the chart that need neither images nor keys."""
RESOURCES: Final = {
    "NetworkPolicy": f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies",
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "ReplicaSet": f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets",
    "Pod": f"/api/v1/namespaces/{NAMESPACE}/pods",
}
POLICIES: Final = ("mcp-exec-base", "mcp-exec-base-default", "mcp-exec-pool-default", "ts-bank")
LABELS: Final = workload_labels("bank")
HARDENED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
POD: Final = {
    "automountServiceAccountToken": False,
    "containers": [{"name": "c", "image": "none.invalid/none:1", "securityContext": HARDENED}],
}
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FOREIGN: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "gone",
    "uid": "00000000-0000-4000-8000-000000000000",
}


@dataclass(frozen=True, kw_only=True)
class Server:
    """The API server, and requests to it in the name of others."""

    plane: ControlPlane
    client: httpx.Client

    def send(
        self, method: str, path: str, body: Object | list[Object] | None = None, *, user: str = "", dry: bool = True
    ) -> httpx.Response:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind} | ({"Impersonate-User": user} if user else {})
        mode = {"dryRun": "All"} if dry else {}
        return self.client.request(method, path, json=body, headers=headers, params=mode)

    def create(self, body: Object, *, user: str = "", dry: bool = False, path: str = "") -> httpx.Response:
        return self.send("POST", path or RESOURCES[body["kind"]], body, user=user, dry=dry)

    def get(self, path: str) -> Object:
        return dict(self.client.get(path).raise_for_status().json())


def refused(answer: httpx.Response, said: str = OWNED) -> bool:
    """Return whether an admission policy refused a request with these words."""
    message = str(answer.json().get("message", ""))
    assert answer.status_code == 403 or answer.is_success or answer.status_code == 422, message
    return "ValidatingAdmissionPolicy" in message and said in message


@pytest.fixture(scope="module")
def server(helm3: Render, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with (
        running_control_plane(tmp_path_factory.mktemp("plane"), controllers=True) as plane,
        plane.connect() as client,
    ):
        found = Server(plane=plane, client=client)
        rendered = helm3({"namespaces": [NAMESPACE, "ending"]}, "--kube-version", "1.36.0")
        roles = [
            bind(TENANT, "edit"), bind(OWNER, "admin"), bind(OWNER, "mcp-exec-manager"),
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "policies"},
                "rules": [{"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["patch"]}],
            },
            bind(INSTALLER, "cluster-admin", everywhere=True),
            bind(POLICIES_OF_ALL, "policies", everywhere=True),
        ]  # fmt: skip
        system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
        apply(plane, [system, *(each for each in rendered.objects if each["kind"] == "Namespace")])
        apply(plane, [yaml.safe_load(path.read_text()) for path in sorted((CHART / "crds").glob("*.yaml"))])
        apply(plane, [*(each for each in rendered.objects if each["kind"] in KINDS - {"Namespace"}), *roles])
        make(found)
        yield found


def bind(user: str, role: str, *, everywhere: bool = False) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding" if everywhere else "RoleBinding",
        "metadata": {"name": f"{user}-{role}"} | ({} if everywhere else {"namespace": NAMESPACE}),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def apply(plane: ControlPlane, objects: list[Object]) -> None:
    done = plane.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(objects))
    assert done.returncode == 0, done.stderr


def make(server: Server) -> None:
    """Make what the operator makes of a pool and a stdio server, as its account, once the policies hold."""
    place = {"namespace": NAMESPACE}
    stdio = {"image": "none.invalid/none:1", "command": ["serve"]}
    pool = {"kind": "SandboxPool", "metadata": {"name": "default", **place}, "spec": {"image": "none.invalid/none:1"}}
    bank = {"kind": "ToolServer", "metadata": {"name": "bank", **place}, "spec": {"stdio": stdio}}
    uids = {}
    for each, plural in ((pool, "sandboxpools"), (bank, "toolservers")):
        path = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{plural}"
        eventually(lambda path=path: server.client.get(path).is_success, what="the kind is served", seconds=60)  # type: ignore[misc]
        made = server.create({"apiVersion": API_VERSION, **each}, path=path)
        uids[plural] = made.raise_for_status().json()["metadata"]["uid"]
    own = PoolIdentity(**place, name="default", uid=uids["sandboxpools"])
    identity = ServerIdentity(**place, name="bank", uid=uids["toolservers"])
    policy = build_server_policy(server=identity, stdio=Stdio.model_validate(stdio), release=RELEASE_PODS)
    deployment = build_deployment(
        server=identity, stdio=Stdio.model_validate(stdio), bridge=BridgeImage(image="none.invalid/none:1"),
        secrets="",
    )  # fmt: skip
    for each in (
        build_namespace_policy(NAMESPACE), build_base_policy(pool=own), build_policy(pool=own, release=RELEASE_PODS),
        policy, deployment,
    ):  # fmt: skip
        server.create(each, user=OPERATOR).raise_for_status()
    probes = [
        (TENANT, OWNED, LOOKALIKES["a Deployment"], ""),
        (TENANT, SERVER_PODS, named("Pod", "mine", labels=LABELS, spec=POD), ""),
        (TENANT, OPENS, network_policy(), ""),
        (OPERATOR, DEFINITIONS, OTHERS, CRDS),
    ]
    for user, said, body, path in probes:
        eventually(
            lambda user=user, said=said, body=body, path=path: refused(  # type: ignore[misc]
                server.create(body, user=user, dry=True, path=path), said
            ),
            what=f"it is refused: {said}", seconds=60,
        )  # fmt: skip
    eventually(lambda: the_pod(server), what="Kubernetes makes the server's pod", seconds=60)


def the_pod(server: Server) -> Object:
    pods = server.get(f"{RESOURCES['Pod']}?labelSelector=mcp-exec.dev/tool-server=bank")["items"]
    return dict(pods[0]) if pods else {}


OTHER_SPEC = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "web"}}, "policyTypes": ["Ingress"]}
CHANGES: dict[str, Object] = {
    "finalizers": {"metadata": {"finalizers": None}},
    "more finalizers": {"metadata": {"finalizers": ["foregroundDeletion", "example.com/forever"]}},
    "owners": {"metadata": {"ownerReferences": [FOREIGN]}},
    "labels": {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}},
    "another label": {"metadata": {"labels": {"team": "a"}}},
    "annotations": {"metadata": {"annotations": {"note": "n"}}},
    "spec": {"spec": OTHER_SPEC},
}


@pytest.mark.parametrize("user", [TENANT, OWNER])
@pytest.mark.parametrize("name", POLICIES)
def test_nobody_in_the_namespace_deletes_a_policy_of_the_operator(server: Server, user: str, name: str) -> None:
    for method, path in (("DELETE", f"/{name}"), ("DELETE", "")):
        assert refused(server.send(method, RESOURCES["NetworkPolicy"] + path, user=user)), path


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", POLICIES)
def test_nobody_in_the_namespace_changes_a_policy_of_the_operator(server: Server, name: str, change: str) -> None:
    path = f"{RESOURCES['NetworkPolicy']}/{name}"
    assert refused(server.send("PATCH", path, CHANGES[change], user=TENANT))


WORKLOADS: dict[str, tuple[str, str, Object | None]] = {
    "no Deployment": ("DELETE", "Deployment", None),
    "another image": (
        "PATCH", "Deployment",
        {"spec": {"template": {"spec": {"containers": [{"name": "server", "image": "evil.invalid/x:1"}]}}}},
    ),
    "no labels of the Deployment": (
        "PATCH", "Deployment", {"metadata": {"labels": dict.fromkeys(LABELS), "annotations": None}},
    ),
    "a restart": ("PATCH", "Deployment", {"spec": {"template": {"metadata": {"annotations": {"at": "now"}}}}}),
    "two pods": ("PATCH", "Deployment/scale", {"spec": {"replicas": 2}}),
}  # fmt: skip


@pytest.mark.parametrize("user", [TENANT, OWNER])
@pytest.mark.parametrize("attack", WORKLOADS)
def test_nobody_in_the_namespace_takes_the_place_of_a_stdio_server(server: Server, user: str, attack: str) -> None:
    method, kind, body = WORKLOADS[attack]
    kind, _, part = kind.partition("/")
    path = f"{RESOURCES[kind]}/ts-bank" + (f"/{part}" if part else "")
    assert refused(server.send(method, path, body, user=user))


def test_nobody_in_the_namespace_changes_the_replica_set_of_a_stdio_server(server: Server) -> None:
    (found,) = server.get(f"{RESOURCES['ReplicaSet']}?labelSelector=mcp-exec.dev/tool-server=bank")["items"]
    path = f"{RESOURCES['ReplicaSet']}/{found['metadata']['name']}"
    labels = {"spec": {"template": {"metadata": {"annotations": {"mcp-exec.dev/token-sha256": "mine"}}}}}
    for method, body in (("PATCH", labels), ("DELETE", None)):
        assert refused(server.send(method, path, body, user=TENANT))
    assert refused(server.send("PATCH", f"{path}/scale", {"spec": {"replicas": 2}}, user=TENANT))


def named(kind: str, name: str, version: str = "v1", *, labels: dict[str, str] | None = None, **content: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels or {}}, **content}


def runs(kind: str, *, labels: dict[str, str]) -> Object:
    """A Deployment or ReplicaSet without labels of its own, whose pods have some."""
    template = {"metadata": {"labels": labels}, "spec": POD}
    return named(kind, "mine", "apps/v1", spec={"selector": {"matchLabels": labels}, "template": template})


def network_policy(*excluded: str) -> Object:
    """A policy that opens all pods but those with these names."""
    selector = [{"key": "app.kubernetes.io/name", "operator": "NotIn", "values": list(excluded)}] if excluded else []
    spec = {"podSelector": {"matchExpressions": selector}, "policyTypes": ["Egress"], "egress": [{}]}
    return named("NetworkPolicy", "mine", "networking.k8s.io/v1", spec=spec)


LOOKALIKES = {
    "a NetworkPolicy": named(
        "NetworkPolicy", "mine", "networking.k8s.io/v1", labels={"app.kubernetes.io/managed-by": "mcp-exec"},
        spec=OTHER_SPEC,
    ),
    "a Deployment": runs("Deployment", labels=LABELS),
    "a ReplicaSet": runs("ReplicaSet", labels=LABELS),
}  # fmt: skip


@pytest.mark.parametrize("what", LOOKALIKES)
def test_nobody_in_the_namespace_makes_a_lookalike(server: Server, what: str) -> None:
    assert refused(server.create(LOOKALIKES[what], user=TENANT, dry=True))


@pytest.mark.parametrize(
    ("user", "owner"),
    [(TENANT, None), (OWNER, None), *((f"{KUBERNETES}{each}-controller", each) for each in ("job", "daemon-set"))],
)
def test_nobody_but_the_operators_deployment_makes_a_pod_of_a_stdio_server(
    server: Server, user: str, owner: str | None
) -> None:
    """What makes pods for others, such as the controller of Jobs, makes none with these labels."""
    pod = named("Pod", "mine", labels=LABELS, spec=POD)
    if owner:
        pod["metadata"]["ownerReferences"] = [{**FOREIGN, "kind": "Job", "apiVersion": "batch/v1", "controller": True}]
    assert refused(server.create(pod, user=user, dry=True), SERVER_PODS)


def test_no_pod_of_others_becomes_one_of_a_stdio_server(server: Server) -> None:
    server.create(named("Pod", "web", labels={"app": "web"}, spec=POD), user=TENANT).raise_for_status()
    answer = server.send("PATCH", f"{RESOURCES['Pod']}/web", {"metadata": {"labels": LABELS}}, user=TENANT)
    assert refused(answer, SERVER_PODS)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"mcp-exec.dev/tool-server": None}}},
        {"metadata": {"annotations": {"mcp-exec.dev/token-sha256": "mine"}}},
        {"metadata": {"finalizers": ["example.com/forever"]}},
        {"metadata": {"ownerReferences": None}},
        {"spec": {"activeDeadlineSeconds": 1}},
    ],
    ids=str,
)
def test_nobody_in_the_namespace_changes_the_pod_of_a_stdio_server(server: Server, change: Object) -> None:
    path = f"{RESOURCES['Pod']}/{the_pod(server)['metadata']['name']}"
    assert refused(server.send("PATCH", path, change, user=TENANT), "only the operator may change")


@pytest.mark.parametrize("excluded", ["mcp-exec-sandbox", "mcp-exec-tool-server"])
def test_a_policy_of_others_opens_neither_sandboxes_nor_stdio_servers(server: Server, excluded: str) -> None:
    assert refused(server.create(network_policy(excluded), user=TENANT, dry=True), OPENS)
    both = network_policy("mcp-exec-sandbox", "mcp-exec-tool-server")
    assert server.create(both, user=TENANT, dry=True).is_success


@pytest.mark.parametrize("kind", ["NetworkPolicy", "Deployment", "ReplicaSet"])
def test_what_is_not_the_operators_is_written_as_ever(server: Server, kind: str) -> None:
    labels = {"app.kubernetes.io/name": "web"}
    made = {
        "NetworkPolicy": named("NetworkPolicy", "own", "networking.k8s.io/v1", spec=OTHER_SPEC),
        "Deployment": runs("Deployment", labels=labels),
        "ReplicaSet": runs("ReplicaSet", labels=labels),
    }[kind]
    server.create(made, user=TENANT).raise_for_status()
    path = f"{RESOURCES[kind]}/{made['metadata']['name']}"
    note = {"metadata": {"labels": {"team": "a"}, "finalizers": []}}
    server.send("PATCH", path, note, user=TENANT, dry=False).raise_for_status()
    if kind in ("Deployment", "ReplicaSet"):
        server.send("PATCH", f"{path}/scale", {"spec": {"replicas": 2}}, user=TENANT, dry=False).raise_for_status()
    server.send("DELETE", path, user=TENANT, dry=False).raise_for_status()


def test_operator_and_administrators_write_what_the_operator_made(server: Server) -> None:
    for user in (OPERATOR, INSTALLER):
        for kind in ("NetworkPolicy", "Deployment"):
            path = f"{RESOURCES[kind]}/ts-bank"
            body = server.get(path)
            body["metadata"]["labels"]["team"] = "a"
            server.send("PUT", path, body, user=user).raise_for_status()
            server.send("DELETE", path, user=user).raise_for_status()
    path = f"{RESOURCES['NetworkPolicy']}/mcp-exec-base"
    server.send("DELETE", path, user=CLEANUP).raise_for_status()


def test_who_administers_the_namespace_installs_upgrades_and_removes_the_chart_without_cluster_objects(
    server: Server, helm3: Render
) -> None:
    values = {"namespaces": [NAMESPACE], "clusterObjects": {"create": False}}
    own = [each for each in helm3(values).objects if each["metadata"].get("namespace") == NAMESPACE]
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    spec = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "mcp-exec-sandbox"}}, "policyTypes": ["Egress"]}
    former = named("NetworkPolicy", "mcp-exec-sandboxes", "networking.k8s.io/v1", labels=labels, spec=spec)
    server.create(former, user=OWNER).raise_for_status()
    gone = server.send("DELETE", f"{RESOURCES['NetworkPolicy']}/mcp-exec-sandboxes", user=OWNER, dry=False)
    gone.raise_for_status()
    assert own
    for verb in (("apply", "--server-side", "--force-conflicts"), ("delete",)):
        done = server.plane.kubectl(
            *verb, "--dry-run=server", "-f", "-", input=yaml.safe_dump_all(own), user=OWNER
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_a_network_plugin_marks_the_policies_and_opens_none(server: Server) -> None:
    """Amazon's controller enforces a policy once it has added its finalizer. Its right holds in all namespaces."""
    path = f"{RESOURCES['NetworkPolicy']}/mcp-exec-base-default"
    kept = ["foregroundDeletion", "networking.k8s.aws/resources"]
    marked = {"metadata": {"finalizers": kept, "annotations": {"plugin": "p"}}}
    server.send("PATCH", path, marked, user=POLICIES_OF_ALL).raise_for_status()
    for change in ("finalizers", "owners", "labels", "spec"):
        assert refused(server.send("PATCH", path, CHANGES[change], user=POLICIES_OF_ALL)), change


def definition(plural: str, group: str, *, names: Object | None = None) -> Object:
    """A definition that the operator does not have, with all the marks of its own."""
    made = yaml.safe_load((CHART / "crds" / "skills.yaml").read_text())
    spec = made["spec"] | {"group": group, "names": names or made["spec"]["names"]}
    metadata = {"name": f"{plural}.{group}", "annotations": {ANNOTATION_RELEASE_VERSION: RELEASE}}
    return {**made, "metadata": metadata, "spec": spec}


OTHERS = definition("skills", "example.com")
WEBHOOK = {
    "strategy": "Webhook",
    "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://evil.invalid/convert"}},
}


def test_the_operator_writes_its_own_definitions_and_nothing_else_into_them(server: Server) -> None:
    """Who changes a definition sees and changes each object of its kind, in all releases."""
    names = [f"{plural}.{GROUP}" for plural in build_definitions()]
    for name in names:
        stored = server.get(f"{CRDS}/{name}")
        server.send("PUT", f"{CRDS}/{name}", stored, user=OPERATOR).raise_for_status()
        newer = {ANNOTATION_RELEASE_VERSION: "999999999.0.0"}
        for change in (
            {"spec": stored["spec"] | {"conversion": WEBHOOK}},
            {"metadata": stored["metadata"] | {"annotations": stored["metadata"]["annotations"] | newer}},
            {"metadata": stored["metadata"] | {"annotations": {}}},
            {"metadata": stored["metadata"] | {"ownerReferences": [FOREIGN]}},
            {"metadata": stored["metadata"] | {"finalizers": ["example.com/forever"]}},
            {"metadata": stored["metadata"] | {"labels": {"argocd.argoproj.io/instance": "mine"}}},
        ):
            answer = server.send("PUT", f"{CRDS}/{name}", stored | change, user=OPERATOR)
            assert refused(answer, DEFINITIONS), change
    for made in (OTHERS, definition("others", GROUP, names={"plural": "others", "kind": "Other"})):
        assert refused(server.create(made, user=OPERATOR, dry=True, path=CRDS), DEFINITIONS)
        server.create(made, user=INSTALLER, dry=True, path=CRDS).raise_for_status()


def test_kubernetes_ends_a_pool_a_server_and_a_namespace_with_all_that_the_operator_made(server: Server) -> None:
    owned = [name for name in POLICIES if name != "mcp-exec-base"]
    for plural, name in (("sandboxpools", "default"), ("toolservers", "bank")):
        path = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{plural}/{name}"
        server.send("DELETE", path, dry=False).raise_for_status()

    def gone() -> bool:
        left = [each["metadata"]["name"] for each in server.get(RESOURCES["NetworkPolicy"])["items"]]
        return not set(owned) & set(left) and "mcp-exec-base" in left and not the_pod(server)

    eventually(gone, what="the garbage collector has deleted the policies", seconds=60)
    other = RESOURCES["NetworkPolicy"].replace(f"/{NAMESPACE}/", "/ending/")
    server.create(build_namespace_policy("ending"), user=OPERATOR, path=other).raise_for_status()
    server.send("DELETE", "/api/v1/namespaces/ending", dry=False).raise_for_status()
    ended = lambda: server.client.get("/api/v1/namespaces/ending").status_code == 404  # noqa: E731
    eventually(ended, what="the namespace is gone", seconds=60)
