"""Who may write what in a served namespace, by the admission policies alone: every user has all rights here."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from mcp_exec_api.constants import API_VERSION
from mcp_exec_api.crd_schema import build_definitions
from tests.e2e.support import NAMESPACE, RELEASE, SYSTEM, Cluster, Gateway, execution_manifest
from tests.e2e.toolservers import HARDENED
from tests.support.until import eventually

Object = dict[str, Any]

OPERATOR, GATEWAY, BROKER, CLEANUP = (
    f"system:serviceaccount:{SYSTEM}:{RELEASE}-{name}" for name in ("operator", "gateway", "broker", "cleanup")
)
ADMIN, KUBELET, SCHEDULER = "alice@example.com", "system:node:node1", "system:kube-scheduler"
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
NEIGHBOUR = f"system:serviceaccount:{NAMESPACE}:default"
EVERYBODY = frozenset({OPERATOR, GATEWAY, BROKER, CLEANUP, ADMIN, KUBELET, SCHEDULER, CONTROLLER, NEIGHBOUR})

CREATED = "only the operator may create sandboxes, or make a pod one"
ALTERED = "only the operator may change the labels or the spec of a sandbox or of a stdio server's pod"
OPENED = "this NetworkPolicy could open sandboxes or stdio servers"
LABELLED = "only the gateway may set, change or remove labels with the prefix mcp-exec.dev/"
ANNOTATED = "only the gateway may set, change or remove annotations with the prefix mcp-exec.dev/"
DECIDED = "spec.approvals must be empty when an execution is created"
SIGNED = "spec.approvals[].by must be your own username"
STATED = "only mcp-exec may write the status"
CREATED_BY = "the annotation mcp-exec.dev/created-by must be your own username or missing, and cannot be changed"
HELD = "only mcp-exec and Kubernetes may add metadata.finalizers"
OWNED = "only mcp-exec and Kubernetes may set, change or remove metadata.ownerReferences"

SANDBOX = {"app.kubernetes.io/name": "mcp-exec-sandbox"}
UNLABELLED = {"metadata": {"labels": {"app.kubernetes.io/name": None}}}
TARGET = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
DEBUGGER = {"name": "debugger", "image": "none.invalid/none:1", "securityContext": HARDENED}
DECISION = {"id": "1", "decision": "Approve", "by": "somebody@example.com"}
NAME = "policies"
"""The objects of the tests."""
KINDS = {
    "CodeExecution": {"code": "print(1)"},
    "ExecutionRollout": {
        "arms": [{"name": "direct", "mode": "direct"}, {"name": "code", "mode": "code"}],
        "control": "direct",
        "stages": [{"name": "few", "percent": 5, "manual": True}],
    },
    "SandboxPool": {"image": "none.invalid/none:1", "warm": {"min": 0}},
    "SandboxSession": {"name": NAME, "user": "somebody", "poolRef": {"name": NAME}},
    "Skill": {"name": NAME, "version": 1, "description": "d", "code": "def run(): ..."},
    "ToolServer": {"url": "http://127.0.0.1:9/mcp"},
}


@dataclass(frozen=True, kw_only=True)
class Write:
    """A request that changes nothing, who may make it, and the reason that everybody else gets."""

    path: str
    body: Object
    create: bool = False
    allowed: frozenset[str] = field(default_factory=lambda: EVERYBODY)
    said: str = ""

    def send(self, server: httpx.Client, user: str) -> str:
        """Return why a user who has every right is refused, or nothing."""
        answer = server.request(
            "POST" if self.create else "PATCH",
            f"{self.path}?dryRun=All",
            json=self.body,
            headers={
                "Impersonate-User": user,
                "Impersonate-Group": "system:masters",
                "Content-Type": "application/json" if self.create else "application/merge-patch+json",
            },
        )
        if answer.is_success:
            return ""
        message = str(answer.json()["message"])
        assert "ValidatingAdmissionPolicy" in message, (self, user, message)
        return message


def pod(name: str, labels: dict[str, str]) -> Object:
    """A pod that is never scheduled."""
    container = {"name": "main", "image": "none.invalid/none:1", "securityContext": HARDENED}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": [container]},
    }


def network_policy(**selector: Any) -> Object:
    spec = {"podSelector": selector, "policyTypes": ["Egress"], "egress": [{}]}
    metadata = {"name": "opened", "namespace": NAMESPACE}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def binding(name: str, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": TARGET}


def execution(**changes: Any) -> Object:
    manifest = execution_manifest(name="forged", code="print(1)", **changes.pop("spec", {}))
    return manifest | {"metadata": manifest["metadata"] | changes}


PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WEB = f"{PODS}/{NAME}"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
EXECUTIONS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/codeexecutions"
ONE = f"{EXECUTIONS}/{NAME}"
WRITES = {
    "another pod": Write(path=PODS, create=True, body=pod("another", {"app": "web"})),
    "another pod's label": Write(path=WEB, body={"metadata": {"labels": {"app": "shop"}}}),
    "another pod's binding": Write(path=f"{WEB}/binding", create=True, body=binding(NAME)),
    "another pod's status": Write(path=f"{WEB}/status", body={"status": {"message": "m"}}),
    "another pod's debugger": Write(
        path=f"{WEB}/ephemeralcontainers", body={"spec": {"ephemeralContainers": [DEBUGGER]}}
    ),
    "a sandbox": Write(
        path=PODS, create=True, body=pod("forged", SANDBOX), allowed=frozenset({OPERATOR}), said=CREATED
    ),
    "a label that makes a sandbox": Write(
        path=WEB, body={"metadata": {"labels": SANDBOX}}, allowed=frozenset({OPERATOR}), said=CREATED
    ),
    "a status with a label that makes a sandbox": Write(
        path=f"{WEB}/status", body={"metadata": {"labels": SANDBOX}}, allowed=frozenset({OPERATOR}), said=CREATED
    ),
    "a binding that makes a sandbox": Write(
        path=f"{WEB}/binding", create=True, body=binding(NAME, labels=SANDBOX),
        allowed=frozenset({OPERATOR}), said=CREATED,
    ),
    "a policy that opens sandboxes": Write(
        path=POLICIES, create=True, body=network_policy(), allowed=frozenset({OPERATOR}), said=OPENED
    ),
    "a policy for other pods": Write(
        path=POLICIES, create=True, body=network_policy(matchLabels={"app.kubernetes.io/name": "web"})
    ),
    "an execution": Write(path=EXECUTIONS, create=True, body=execution(labels={"team": "a"})),
    "a caller": Write(
        path=EXECUTIONS, create=True, body=execution(labels={"mcp-exec.dev/caller": "a"}),
        allowed=frozenset({GATEWAY}), said=LABELLED,
    ),
    "a proof of a caller": Write(
        path=EXECUTIONS, create=True, body=execution(annotations={"mcp-exec.dev/caller-proof": "a"}),
        allowed=frozenset({GATEWAY}), said=ANNOTATED,
    ),
    "a decision before its question": Write(
        path=EXECUTIONS, create=True, body=execution(spec={"approvals": [DECISION]}),
        allowed=frozenset({GATEWAY}), said=DECIDED,
    ),
    "another caller": Write(
        path=ONE, body={"metadata": {"labels": {"mcp-exec.dev/caller": "a"}}},
        allowed=frozenset({GATEWAY}), said=LABELLED,
    ),
    "a decision of somebody else": Write(
        path=ONE, body={"spec": {"approvals": [DECISION]}}, allowed=frozenset({GATEWAY}), said=SIGNED
    ),
    "another account": Write(
        path=EXECUTIONS, create=True, body=execution(annotations={"mcp-exec.dev/created-by": "somebody@example.com"}),
        allowed=frozenset({GATEWAY, OPERATOR}), said=CREATED_BY,
    ),
    "another account of what exists": Write(
        path=ONE, body={"metadata": {"annotations": {"mcp-exec.dev/created-by": "somebody@example.com"}}},
        allowed=frozenset({GATEWAY, OPERATOR}), said=CREATED_BY,
    ),
    "a finalizer": Write(
        path=ONE, body={"metadata": {"finalizers": ["example.com/held"]}},
        allowed=frozenset({GATEWAY, OPERATOR}), said=HELD,
    ),
    "an owner that does not exist": Write(
        path=ONE, body={"metadata": {"ownerReferences": [TARGET | {"kind": "Pod", "uid": "b"}]}},
        allowed=frozenset({GATEWAY, OPERATOR}), said=OWNED,
    ),
    "a cancellation": Write(path=ONE, body={"spec": {"cancelRequested": True}}),
    **{
        f"the status of a {kind}": Write(
            path=f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{plural}/{NAME}/status",
            body={"status": {"message": "m"} if kind == "CodeExecution" else {}},
            allowed=frozenset({OPERATOR, BROKER if kind == "ToolServer" else CLEANUP}), said=STATED,
        )
        for plural, kind in ((each, crd["spec"]["names"]["kind"]) for each, crd in build_definitions().items())
    },
}  # fmt: skip
SANDBOX_WRITES = {
    "no label": Write(path="", body=UNLABELLED, allowed=frozenset({OPERATOR}), said=ALTERED),
    "no label, by its status": Write(path="/status", body=UNLABELLED, allowed=frozenset({OPERATOR}), said=ALTERED),
    "another time limit": Write(
        path="", body={"spec": {"activeDeadlineSeconds": 9}}, allowed=frozenset({OPERATOR}), said=ALTERED
    ),
    "a debugger": Write(
        path="/ephemeralcontainers", body={"spec": {"ephemeralContainers": [DEBUGGER]}},
        allowed=frozenset({OPERATOR}), said=ALTERED,
    ),
    "a note": Write(path="", body={"metadata": {"annotations": {"note": "n"}}}),
    "its state": Write(path="/status", body={"status": {"message": "m"}}),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def objects(installed: Cluster) -> Iterator[None]:
    """Another pod, and an object of each kind."""
    plurals = {crd["spec"]["names"]["kind"] for crd in build_definitions().values()}
    assert plurals == set(KINDS)
    metadata = {"name": NAME, "namespace": NAMESPACE}
    installed.apply(pod(NAME, {"app": "web"}))
    for kind, spec in KINDS.items():
        installed.apply({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
    yield
    for kind in KINDS:
        installed.delete(kind, NAME)
    installed.delete("Pod", NAME)


def warm(cluster: Cluster) -> Object:
    """A sandbox that no execution has."""
    labels = "mcp-exec.dev/pool=default,mcp-exec.dev/state=warm"
    found = eventually(lambda: cluster.select("Pod", labels=labels), seconds=60, what="a warm sandbox")
    return dict((found or [])[0])


def check(server: httpx.Client, write: Write) -> None:
    refusals = {user: write.send(server, user) for user in sorted(EVERYBODY)}
    assert {user for user, said in refusals.items() if not said} == write.allowed, refusals
    assert [said for user, said in refusals.items() if user not in write.allowed and write.said not in said] == []


@pytest.mark.parametrize("name", WRITES)
def test_each_user_writes_what_is_theirs_alone(server: httpx.Client, name: str) -> None:
    check(server, WRITES[name])


@pytest.mark.parametrize("name", SANDBOX_WRITES)
def test_nobody_but_the_operator_alters_a_sandbox(installed: Cluster, server: httpx.Client, name: str) -> None:
    write = SANDBOX_WRITES[name]
    path = f"{PODS}/{warm(installed)['metadata']['name']}{write.path}"
    check(server, Write(path=path, body=write.body, allowed=write.allowed, said=write.said))


def test_nobody_but_the_operator_gives_a_sandbox_more_memory(installed: Cluster, server: httpx.Client) -> None:
    if "pods/resize" not in {each["name"] for each in server.get("/api/v1").json()["resources"]}:
        pytest.skip("Kubernetes before 1.33 has no pods/resize, and no pod gets more memory")
    found = warm(installed)
    containers = [
        {"name": each["name"], "resources": {"limits": each["resources"]["limits"] | {"memory": "4Gi"}}}
        for each in found["spec"]["containers"]
    ]
    path = f"{PODS}/{found['metadata']['name']}/resize"
    refusals = {}
    for user in sorted(EVERYBODY - {OPERATOR}):
        answer = server.patch(
            f"{path}?dryRun=All", json={"spec": {"containers": containers}},
            headers={"Impersonate-User": user, "Impersonate-Group": "system:masters",
                     "Content-Type": "application/strategic-merge-patch+json"},
        )  # fmt: skip
        refusals[user] = answer.text
    assert [text for text in refusals.values() if ALTERED not in text] == []


def test_an_approver_decides_in_their_own_name_alone(installed: Cluster, server: httpx.Client) -> None:
    """With the rights that the chart's roles give."""
    users = {"approver": ["mcp-exec-caller", "mcp-exec-approver"], "caller": ["mcp-exec-caller"]}
    accounts = {name: f"system:serviceaccount:{NAMESPACE}:{name}" for name in users}

    def decide(name: str, by: str) -> httpx.Response:
        return server.patch(
            f"{ONE}?dryRun=All", json={"spec": {"approvals": [DECISION | {"by": by}]}},
            headers={"Impersonate-User": accounts[name], "Content-Type": "application/merge-patch+json"},
        )  # fmt: skip

    try:
        for name, roles in users.items():
            for role in roles:
                installed.kubectl(
                    "create", "rolebinding", f"{name}-{role}", "-n", NAMESPACE, f"--clusterrole={role}",
                    f"--serviceaccount={NAMESPACE}:{name}",
                )  # fmt: skip
        eventually(lambda: decide("approver", accounts["approver"]).is_success, what="the rights are in effect")
        assert SIGNED in decide("approver", accounts["caller"]).text
        said = "you need the right to update codeexecutions/approval to decide on tool calls"
        assert said in decide("caller", accounts["caller"]).text
    finally:
        for name, roles in users.items():
            installed.delete("RoleBinding", *(f"{name}-{role}" for role in roles))


@pytest.mark.parametrize("component", ["operator", "gateway", "broker", "cleanup"])
def test_no_component_enters_a_sandbox_or_writes_secrets(
    installed: Cluster, server: httpx.Client, component: str
) -> None:
    """With the rights that the chart gives it."""
    found = warm(installed)["metadata"]["name"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "forged"}}
    headers = {"Impersonate-User": f"system:serviceaccount:{SYSTEM}:{RELEASE}-{component}"}
    for path, body in (
        (f"{PODS}/{found}/exec?command=id&container=sandbox&stdout=true", None),
        (f"{PODS}/{found}/attach", None),
        (f"{PODS}/{found}/portforward", None),
        (f"{PODS}/{found}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": found}}),
        (f"{PODS}/{found}/binding", binding(found)),
        (f"/api/v1/namespaces/{NAMESPACE}/secrets", secret),
        (f"/api/v1/namespaces/{SYSTEM}/secrets", secret),
        (f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token", {"spec": {}}),
    ):
        answer = server.post(path, json=body, headers=headers)
        assert (answer.status_code, answer.json()["reason"]) == (httpx.codes.FORBIDDEN, "Forbidden"), (
            path,
            answer.text,
        )


def test_nothing_that_kubernetes_writes_counts_as_an_alteration(
    installed: Cluster, gateway: Gateway, runtimes: dict[str, str | None]
) -> None:
    """Kubelet, scheduler and controllers wrote to each of these pods."""
    for pool in runtimes:
        assert gateway.run("print(1)", poolRef={"name": pool})["phase"] == "Succeeded"
    for pool in installed.select("SandboxPool"):
        if pool["metadata"]["name"] in (*runtimes, "default"):
            conditions = {each["type"]: each for each in pool["status"]["conditions"]}
            assert conditions["PodsTrusted"]["status"] == "True", conditions["PodsTrusted"]
