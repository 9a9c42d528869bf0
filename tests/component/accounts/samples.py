"""What each row of the table of accounts is tried with: objects by the names that rows give them."""

from dataclasses import dataclass
from typing import Final

from tests.component.accounts.objects import (
    CLAIM,
    EXECUTION,
    LABELS,
    NAMESPACE,
    POD_SPEC,
    POOL,
    SANDBOX,
    SANDBOX_LABELS,
    SERVER,
    SERVER_LABELS,
    named,
    of_project,
    select,
    workload,
)
from tests.component.accounts.server import Object

from mcp_exec_api.constants import ANNOTATION_SEAL, LABEL_CALLER
from mcp_exec_operator.core.pods.network_policy import NAMESPACE_POLICY

OWN: Final = "own"
"""Name of the objects of the account."""
_SERVER: Final = f"ts-{SERVER}"
_FINALIZER: Final = {"finalizers": ["example.com/kept"]}
_OWNER: Final = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}
_DECISION: Final = {"approvals": [{"id": "1", "decision": "Approve", "by": "somebody@example.com"}]}
_NOTE: Final = {"metadata": {"annotations": {"example.com/note": "changed"}}}
_OF_A_CALLER: Final = {"labels": {LABEL_CALLER: "key.b"}}
_OF_ANOTHER: Final = {"annotations": {"mcp-exec.dev/created-by": "somebody@example.com"}}
_RELEASED: Final = {"metadata": {"finalizers": None}}
_EVERYTHING: Final = {"ingress": [{}], "egress": [{}]}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """An object with a name, and what is written."""

    name: str = OWN
    body: Object | None = None
    """What a `create` sends."""
    patch: Object | None = None
    """What an `update` or a `patch` changes."""
    stored: bool = False
    """Whether an administrator makes the body before the tests, so that it can be changed and deleted."""


def _own(body: Object, *, patch: Object | None = None) -> Sample:
    return Sample(body=body, patch=patch or _NOTE, stored=True)


def _policy(labels: dict[str, str], **rules: object) -> Object:
    spec = {"podSelector": select(labels) if labels else {}, **rules}
    return named("networking.k8s.io/v1", "NetworkPolicy", OWN, spec=spec)


def _service(**spec: object) -> Object:
    return named("v1", "Service", OWN, spec={"selector": LABELS, "ports": [{"port": 80}], **spec})


def _role(name: str, group: str, resource: str, verb: str) -> Object:
    rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
    return named("rbac.authorization.k8s.io/v1", "Role", name, rules=[rule])


def _binding(role: str, name: str = OWN) -> Object:
    return named(
        "rbac.authorization.k8s.io/v1", "RoleBinding", name,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        subjects=[{"kind": "User", "name": "somebody@example.com", "apiGroup": "rbac.authorization.k8s.io"}],
    )  # fmt: skip


def _autoscaler(version: str, kind: str, name: str) -> Object:
    target = {"apiVersion": version, "kind": kind, "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": 9, "maxReplicas": 9}
    return named("autoscaling/v2", "HorizontalPodAutoscaler", OWN, spec=spec)


def _execution(spec: Object | None = None, **metadata: object) -> Sample:
    return Sample(body=of_project("CodeExecution", OWN, {"code": "1"} | (spec or {}), **metadata))


_EVENT: Final = {
    "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": SANDBOX, "namespace": NAMESPACE},
    "reason": "FailedMount", "message": "forged", "type": "Warning",
}  # fmt: skip
_CLAIMED: Final = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "none"}}]}}
_ARMS: Final = {
    "arms": [{"name": "direct", "mode": "direct"}, {"name": "code", "mode": "code"}],
    "control": "direct",
    "stages": [{"name": "few", "percent": 5, "manual": True}],
}
_SESSION: Final = {"name": OWN, "user": "ann", "poolRef": {"name": POOL}}
_SKILL: Final = {"name": OWN, "version": 1, "description": "d", "code": "def run(): ..."}
_SELECTED: Final = {"selector": select(LABELS)}

_EXECUTIONS: Final = {
    "an execution": Sample(name=EXECUTION, body=of_project("CodeExecution", OWN, {"code": "1"})),
    "an execution with a caller": _execution(**_OF_A_CALLER),
    "an execution with a decision": _execution(_DECISION),
    "an execution of another account": _execution(**_OF_ANOTHER),
    "an execution with a finalizer": _execution(**_FINALIZER),
    "an execution with an owner": _execution(ownerReferences=[_OWNER]),
    "cancellation of an execution": Sample(name=EXECUTION, patch={"spec": {"cancelRequested": True}}),
    "time to live of an execution": Sample(name=EXECUTION, patch={"spec": {"ttlSecondsAfterFinished": 9}}),
    "caller of an execution": Sample(name=EXECUTION, patch={"metadata": {"labels": {LABEL_CALLER: "key.b"}}}),
    "decision on a call": Sample(name=EXECUTION, patch={"spec": _DECISION}),
    "finalizer of an execution": Sample(name=EXECUTION, patch={"metadata": _FINALIZER}),
    "owner of an execution": Sample(name=EXECUTION, patch={"metadata": {"ownerReferences": [_OWNER]}}),
    "a session": _own(
        of_project("SandboxSession", OWN, _SESSION),
        patch={"spec": {"resetRequest": "again"}},
    ),
    "a skill": _own(
        of_project("Skill", OWN, _SKILL),
        patch={
            "spec": {
                "review": {"decision": "Approve", "by": "somebody@example.com", "at": "2026-01-01T00:00:00.000000Z"}
            }
        },
    ),
    "a session with an owner": Sample(body=of_project("SandboxSession", OWN, _SESSION, **_OF_A_CALLER)),
    "a session of another account": Sample(body=of_project("SandboxSession", OWN, _SESSION, **_OF_ANOTHER)),
    "a session with a finalizer": Sample(body=of_project("SandboxSession", OWN, _SESSION, **_FINALIZER)),
    "finalizer of a session": Sample(patch={"metadata": _FINALIZER}),
    "owner of a session": Sample(patch={"metadata": {"ownerReferences": [_OWNER]}}),
    "a skill with an author": Sample(body=of_project("Skill", OWN, _SKILL, **_OF_A_CALLER)),
    "a skill of another account": Sample(body=of_project("Skill", OWN, _SKILL, **_OF_ANOTHER)),
    "a skill with a finalizer": Sample(body=of_project("Skill", OWN, _SKILL, **_FINALIZER)),
    "a rollout": _own(of_project("ExecutionRollout", OWN, _ARMS)),
    "a pool": _own(of_project("SandboxPool", OWN, {"image": "none.invalid/none:1", "warm": {"min": 0}})),
    "scale of a pool": Sample(name=POOL, patch={"spec": {"replicas": 9}}),
    "a ToolServer": _own(of_project("ToolServer", OWN, {"url": "http://127.0.0.1:9/mcp"})),
}

_PODS: Final = {
    "a pod": _own(workload("v1", "Pod", OWN) | {"spec": POD_SPEC}),
    "a pod with the labels of a sandbox": Sample(
        body=named("v1", "Pod", OWN, metadata={"labels": SANDBOX_LABELS}, spec=POD_SPEC)
    ),
    "a pod with the labels of a stdio server": Sample(
        body=named("v1", "Pod", OWN, metadata={"labels": SERVER_LABELS}, spec=POD_SPEC)
    ),
    "label that makes a pod a sandbox": Sample(patch={"metadata": {"labels": SANDBOX_LABELS}}),
    "a sandbox": Sample(name=SANDBOX),
    "image of a sandbox": Sample(
        name=SANDBOX, patch={"spec": {"containers": [{"name": "sandbox", "image": "none.invalid/none:2"}]}}
    ),
    "labels of a sandbox": Sample(name=SANDBOX, patch={"metadata": {"labels": dict.fromkeys(SANDBOX_LABELS)}}),
    "annotations of a sandbox": Sample(
        name=SANDBOX, patch={"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": None}}}
    ),
    "finalizer of a sandbox": Sample(name=SANDBOX, patch={"metadata": _FINALIZER}),
    "seal of a sandbox": Sample(name=SANDBOX, patch={"metadata": {"annotations": {ANNOTATION_SEAL: "forged"}}}),
    "owners of a sandbox": Sample(name=SANDBOX, patch={"metadata": {"ownerReferences": None}}),
    "eviction of a sandbox": Sample(name=SANDBOX, body=named("policy/v1", "Eviction", SANDBOX)),
}

_NETWORK: Final = {
    "a NetworkPolicy that opens sandboxes": Sample(
        body=_policy({}, **_EVERYTHING), patch={"spec": {"podSelector": {"matchLabels": None}, **_EVERYTHING}}
    ),
    "a NetworkPolicy of other pods": _own(_policy({"app.kubernetes.io/name": "web"}, **_EVERYTHING)),
    "rules of a pool's NetworkPolicy": Sample(name=f"mcp-exec-pool-{POOL}", patch={"spec": _EVERYTHING}),
    "rules of a pool's base policy": Sample(name=f"mcp-exec-base-{POOL}", patch={"spec": _EVERYTHING}),
    "rules of the namespace's base policy": Sample(name=NAMESPACE_POLICY, patch={"spec": _EVERYTHING}),
    "rules of a stdio server's NetworkPolicy": Sample(name=_SERVER, patch={"spec": _EVERYTHING}),
    "finalizers of a pool's base policy": Sample(name=f"mcp-exec-base-{POOL}", patch=_RELEASED),
    "owners of a pool's NetworkPolicy": Sample(
        name=f"mcp-exec-pool-{POOL}", patch={"metadata": {"ownerReferences": [_OWNER]}}
    ),
    "a pool's NetworkPolicy": Sample(name=f"mcp-exec-pool-{POOL}"),
    "a pool's base policy": Sample(name=f"mcp-exec-base-{POOL}"),
    "the namespace's base policy": Sample(name=NAMESPACE_POLICY),
    "a stdio server's NetworkPolicy": Sample(name=_SERVER),
    "a Service": _own(_service()),
    "a Service in front of sandboxes": Sample(body=_service(selector=SANDBOX_LABELS)),
    "a Service with an external address": Sample(body=_service(externalIPs=["192.0.2.1"])),
    "an Ingress": _own(
        named(
            "networking.k8s.io/v1", "Ingress", OWN,
            spec={"defaultBackend": {"service": {"name": _SERVER, "port": {"number": 80}}}},
        )
    ),
}  # fmt: skip

_WORKLOADS: Final = {
    "a workload": {
        "deployments.apps": _own(workload("apps/v1", "Deployment", OWN, spec={"replicas": 0, **_SELECTED})),
        "replicasets.apps": _own(workload("apps/v1", "ReplicaSet", OWN, spec={"replicas": 0, **_SELECTED})),
        "statefulsets.apps": _own(
            workload("apps/v1", "StatefulSet", OWN, spec={"replicas": 0, "serviceName": OWN, **_SELECTED})
        ),
        "daemonsets.apps": _own(workload("apps/v1", "DaemonSet", OWN, spec=_SELECTED)),
        "jobs.batch": _own(workload("batch/v1", "Job", OWN, spec={"suspend": True}, restart="Never")),
        "cronjobs.batch": _own(
            named(
                "batch/v1", "CronJob", OWN,
                spec={
                    "schedule": "0 0 1 1 *", "suspend": True,
                    "jobTemplate": {"spec": workload("batch/v1", "Job", OWN, restart="Never")["spec"]},
                },
            )
        ),
        "replicationcontrollers": _own(
            workload("v1", "ReplicationController", OWN, spec={"replicas": 0, "selector": LABELS})
        ),
    },
    "a workload with the labels of a stdio server": {
        "deployments.apps": Sample(
            body=workload("apps/v1", "Deployment", OWN, spec=_SELECTED, labels=SERVER_LABELS),
            patch={"spec": {"template": {"metadata": {"labels": SERVER_LABELS}}}},
        ),
        "replicasets.apps": Sample(
            body=workload("apps/v1", "ReplicaSet", OWN, spec=_SELECTED, labels=SERVER_LABELS),
            patch={"spec": {"template": {"metadata": {"labels": SERVER_LABELS}}}},
        ),
    },
    "scale of a workload": Sample(patch={"spec": {"replicas": 1}}),
    "a stdio server's Deployment": Sample(name=_SERVER, patch={"spec": {"template": _NOTE}}),
    "scale of a stdio server's Deployment": Sample(name=_SERVER, patch={"spec": {"replicas": 0}}),
    "an autoscaler of a workload": _own(_autoscaler("apps/v1", "Deployment", OWN)),
    "an autoscaler of a pool": Sample(
        body=_autoscaler("mcp-exec.dev/v1beta1", "SandboxPool", POOL),
        patch={
            "spec": {"scaleTargetRef": {"apiVersion": "mcp-exec.dev/v1beta1", "kind": "SandboxPool", "name": POOL}}
        },
    ),
    "a budget of sandboxes": _own(
        named(
            "policy/v1", "PodDisruptionBudget", OWN, spec={"selector": select(SANDBOX_LABELS), "maxUnavailable": 0}
        )
    ),
}  # fmt: skip

_CREDENTIALS: Final = {
    "a Secret": _own(named("v1", "Secret", OWN)),
    "a ServiceAccount": _own(named("v1", "ServiceAccount", OWN)),
    "the default ServiceAccount": Sample(
        name="default", body=named("v1", "ServiceAccount", "another"), patch={"imagePullSecrets": [{"name": OWN}]}
    ),
    "token of a ServiceAccount": Sample(
        name="default", body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    ),
    "a Role": _own(_role(OWN, "", "pods", "get")),
    "a Role that may write a status": Sample(
        body=_role(OWN, "mcp-exec.dev", "codeexecutions/status", "update"),
        patch={
            "rules": [{"apiGroups": ["mcp-exec.dev"], "resources": ["codeexecutions/status"], "verbs": ["update"]}]
        },
    ),
    "rules of the operator's Role": Sample(name="mcp-exec-operator", patch={"rules": []}),
    "subjects of the operator's RoleBinding": Sample(
        name="mcp-exec-operator",
        patch={"subjects": [{"kind": "User", "name": "a@example.com", "apiGroup": "rbac.authorization.k8s.io"}]},
    ),
    "the operator's Role": Sample(name="mcp-exec-operator"),
    "a RoleBinding": _own(_binding(OWN)),
    "a RoleBinding of the operator's Role": Sample(body=_binding("mcp-exec-operator")),
    "the operator's RoleBinding": Sample(name="mcp-exec-operator"),
    "a question about rights": Sample(
        body=named(
            "authorization.k8s.io/v1", "LocalSubjectAccessReview", "",
            spec={
                "user": "somebody@example.com",
                "resourceAttributes": {"namespace": NAMESPACE, "verb": "get", "resource": "pods"},
            },
        )
    ),
    "a Lease": _own(named("coordination.k8s.io/v1", "Lease", OWN)),
    "the claim of the namespace": Sample(
        name=CLAIM,
        body=named("coordination.k8s.io/v1", "Lease", CLAIM),
        patch={"spec": {"holderIdentity": "another", "renewTime": "2999-01-01T00:00:00.000000Z"}}
    ),
}  # fmt: skip

_OTHERS: Final = {
    "an object of another kind": {
        "configmaps": _own(named("v1", "ConfigMap", OWN)),
        "persistentvolumeclaims": _own(
            named(
                "v1", "PersistentVolumeClaim", OWN,
                spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            )
        ),
        "resourceclaims.resource.k8s.io": _own(named("resource.k8s.io/v1", "ResourceClaim", OWN, spec=_CLAIMED)),
        "resourceclaimtemplates.resource.k8s.io": _own(
            named("resource.k8s.io/v1", "ResourceClaimTemplate", OWN, spec={"spec": _CLAIMED})
        ),
    },
    "an Event of a sandbox": {
        "events": _own(named("v1", "Event", OWN, **_EVENT)),
        "events.events.k8s.io": Sample(
            body=named(
                "events.k8s.io/v1", "Event", "another", regarding=_EVENT["involvedObject"], reason="FailedMount",
                note="forged", type="Warning", action="Mount", eventTime="2026-01-01T00:00:00.000000Z",
                reportingController="example.com/forger", reportingInstance="a",
            ),
            patch=_NOTE,
        ),
    },
}  # fmt: skip

SAMPLES: Final[dict[str, Sample | dict[str, Sample]]] = {
    **_EXECUTIONS, **_PODS, **_NETWORK, **_WORKLOADS, **_CREDENTIALS, **_OTHERS
}  # fmt: skip
"""By the name in a row; for a row about several kinds, by kind."""


def find_sample(what: str, kind: str) -> Sample:
    """Return what is written to a kind."""
    found = SAMPLES[what]
    return found if isinstance(found, Sample) else found[kind]


def list_stored() -> list[Object]:
    """Return the objects that an administrator makes before the tests."""
    samples = [
        each for found in SAMPLES.values() for each in ([found] if isinstance(found, Sample) else found.values())
    ]
    return [each.body for each in samples if each.stored and each.body is not None]
