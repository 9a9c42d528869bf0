"""The chart on a real cluster: a second release next to that of the other tests, like a second team's."""

import base64
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiException, VersionApi
from kubernetes.dynamic.exceptions import ResourceNotFoundError

from mcp_exec_api.wire import version
from tests.e2e.objects import JSON_PATCH
from tests.e2e.support import ROOT, Cluster
from tests.e2e.toolservers import HARDENED
from tests.support.pace import paced
from tests.support.until import eventually

# An installation takes as long as the images take to come.
pytestmark = pytest.mark.timeout(900)
GONE_SECONDS = paced(420)
"""A kubelet 1.20 that ends a pod whose volumes it mounts waits for them first: two minutes, perhaps twice."""

CHART = ROOT / "charts" / "mcp-exec"
RELEASE, SYSTEM, SERVED = "charttest", "charttest-system", "charttest"
FULLNAME = f"{RELEASE}-mcp-exec"
WRITTEN_BY = "mcp-exec.dev/release-version"
KEYS = {"sandbox-key", "api-keys", "initial-api-key"}
PLACES = {
    "each served namespace": ("--namespace", SERVED),
    "the release's namespace": ("--namespace", SYSTEM),
    "the cluster": (),
}

NOT_EVERYWHERE = (
    "Prometheus",
    "ServiceMonitor",
    "HorizontalPodAutoscaler",
    "ValidatingAdmissionPolicy",
    "MutatingAdmissionPolicy",
)
"""How kinds begin that a cluster may lack: of the Prometheus operator, and of Kubernetes since 1.23 and 1.30."""
FORBIDDEN = [
    ("operator", SERVED, "list", "secrets"),
    ("operator", SERVED, "create", "secrets"),
    ("operator", SERVED, "create", "pods/exec"),
    ("operator", SERVED, "get", "pods/log"),
    ("operator", SERVED, "create", "codeexecutions.mcp-exec.dev"),
    ("operator", SERVED, "update", "codeexecutions.mcp-exec.dev"),
    ("operator", SERVED, "patch", "codeexecutions.mcp-exec.dev"),
    ("operator", SERVED, "create", "sandboxpools.mcp-exec.dev"),
    ("operator", SERVED, "patch", "sandboxpools.mcp-exec.dev"),
    ("operator", SERVED, "delete", "sandboxpools.mcp-exec.dev"),
    ("operator", SERVED, "deletecollection", "networkpolicies.networking.k8s.io"),
    ("operator", SERVED, "create", "roles.rbac.authorization.k8s.io"),
    ("operator", SERVED, "create", "rolebindings.rbac.authorization.k8s.io"),
    ("operator", SERVED, "patch", f"rolebindings.rbac.authorization.k8s.io:{FULLNAME}-operator-removal"),
    ("operator", SERVED, "delete", f"rolebindings.rbac.authorization.k8s.io:{FULLNAME}-operator"),
    ("operator", SYSTEM, "patch", f"deployments.apps/scale:{FULLNAME}-operator"),
    ("cleanup", SERVED, "delete", "sandboxpools.mcp-exec.dev"),
    ("cleanup", SERVED, "create", "pods"),
    ("cleanup", SYSTEM, "patch", f"deployments.apps/scale:{FULLNAME}-gateway"),
    ("cleanup", SYSTEM, "patch", f"deployments.apps:{FULLNAME}-operator"),
    ("cleanup", "default", "list", "pods"),
    ("cleanup", None, "list", "codeexecutions.mcp-exec.dev"),
    ("operator", SERVED, "impersonate", "serviceaccounts"),
    ("operator", SERVED, "create", "serviceaccounts/token"),
    ("operator", SYSTEM, "get", "secrets"),
    ("operator", SYSTEM, "list", "secrets"),
    ("operator", SYSTEM, "get", "secrets:another"),
    ("operator", SYSTEM, "patch", f"secrets:{FULLNAME}-initial-api-key"),
    ("operator", SYSTEM, "delete", f"secrets:{FULLNAME}-api-keys"),
    ("operator", SYSTEM, "delete", f"secrets:{FULLNAME}-sandbox-key"),
    ("operator", SYSTEM, "get", "serviceaccounts"),
    ("operator", SYSTEM, "create", "pods"),
    ("operator", SYSTEM, "patch", "leases.coordination.k8s.io:another"),
    ("operator", SYSTEM, "delete", f"leases.coordination.k8s.io:{FULLNAME}-operator"),
    ("operator", SERVED, "get", "leases.coordination.k8s.io"),
    ("operator", "default", "list", "pods"),
    ("operator", "default", "list", "codeexecutions.mcp-exec.dev"),
    ("operator", None, "patch", "nodes"),
    ("operator", None, "delete", "nodes"),
    ("operator", None, "list", "namespaces"),
    ("operator", None, "list", "secrets"),
    ("operator", None, "patch", "customresourcedefinitions.apiextensions.k8s.io"),
    ("operator", None, "update", "customresourcedefinitions.apiextensions.k8s.io:another"),
    ("operator", None, "delete", "customresourcedefinitions.apiextensions.k8s.io:skills.mcp-exec.dev"),
    ("gateway", SERVED, "create", "pods"),
    ("gateway", SERVED, "list", "pods"),
    ("gateway", SERVED, "create", "pods/exec"),
    ("gateway", SERVED, "get", "secrets"),
    ("gateway", SERVED, "patch", "codeexecutions.mcp-exec.dev/status"),
    ("gateway", SERVED, "delete", "codeexecutions.mcp-exec.dev"),
    ("gateway", SERVED, "patch", "sandboxpools.mcp-exec.dev"),
    ("gateway", SYSTEM, "get", "secrets"),
    ("gateway", SYSTEM, "list", "secrets"),
    ("gateway", SYSTEM, "get", f"secrets:{FULLNAME}-sandbox-key"),
    ("gateway", SYSTEM, "get", f"secrets:{FULLNAME}-initial-api-key"),
    ("gateway", SYSTEM, "patch", f"secrets:{FULLNAME}-api-keys"),
    ("gateway", "default", "create", "codeexecutions.mcp-exec.dev"),
    ("gateway", "default", "list", "endpointslices.discovery.k8s.io"),
    ("gateway", None, "list", "codeexecutions.mcp-exec.dev"),
    ("gateway", None, "list", "nodes"),
    ("gateway", None, "create", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("broker", SERVED, "list", "secrets"),
    ("broker", SERVED, "create", "pods"),
    ("broker", SERVED, "patch", "codeexecutions.mcp-exec.dev"),
    ("broker", SERVED, "patch", "toolservers.mcp-exec.dev"),
    ("broker", SYSTEM, "get", "secrets"),
    ("broker", None, "list", "secrets"),
]


@dataclass(frozen=True, kw_only=True)
class Release:
    """The release under test."""

    cluster: Cluster
    values: tuple[str, ...]

    @property
    def kubernetes_version(self) -> str:
        """The cluster's version, as `helm template` takes it."""
        return str(json.loads(self.cluster.kubectl("get", "--raw", "/version"))["gitVersion"])

    def helm(self, verb: str, *options: str) -> str:
        chart = () if verb in ("uninstall", "rollback", "test") else (str(CHART), *self.values)
        return self.cluster.helm(verb, RELEASE, *chart, "--namespace", SYSTEM, "--timeout", "3m", *options)

    def secret(self, name: str) -> dict[str, str]:
        data = self.cluster.get("Secret", f"{FULLNAME}-{name}", namespace=SYSTEM).get("data") or {}
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def names_of_secrets(self) -> set[str]:
        """Return which of the release's own Secrets exist, by their names without the release's."""
        names = self.cluster.names("Secret", namespace=SYSTEM)
        return {name.removeprefix(f"{FULLNAME}-") for name in names} & KEYS

    def has_consistent_keys(self) -> bool:
        """Return whether the entry of the initial key is that of its text."""
        if self.names_of_secrets() != KEYS:
            return False
        text = self.secret("initial-api-key")["api-key"]
        entry = self.secret("api-keys").get("initial", "{}")
        return bool(json.loads(entry).get("sha256") == hashlib.sha256(text.encode()).hexdigest())

    def pool(self, name: str = "default") -> dict[str, Any]:
        return dict(self.cluster.get("SandboxPool", name, namespace=SERVED))

    def patch_keys(self, entries: dict[str, str | None]) -> None:
        encoded = {name: text and base64.b64encode(text.encode()).decode() for name, text in entries.items()}
        self.cluster.merge("Secret", f"{FULLNAME}-api-keys", {"data": encoded}, namespace=SYSTEM)

    def may(self, account: str, verb: str, resource: str, *where: str) -> bool:
        """Whether an account has a right, by the API server's own word. A resource is KINDS[.GROUP][/PART][:NAME].

        `kubectl auth can-i` asks only for resources that the API server serves, which `namespaceclaims` is not.
        """
        kind, _, name = resource.partition(":")
        kind, _, part = kind.partition("/")
        kind, _, group = kind.partition(".")
        namespace = where[1] if where[:1] == ("--namespace",) else ""
        asked = {"verb": verb, "resource": kind, "group": group, "subresource": part, "name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{SYSTEM}:{account}",
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated"],
                "resourceAttributes": asked | {"namespace": namespace},
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = json.loads(self.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(review)))
        return bool(answer["status"]["allowed"])


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Release]:
    tag = os.environ.get("TAG", "dev")
    values = {
        "namespaces": f"{{{SERVED}}}",
        "images.tag": tag,
        "operator.image.repository": os.environ.get("OPERATOR_IMAGE", "localhost/mcp-exec-operator"),
        "gateway.image.repository": os.environ.get("GATEWAY_IMAGE", "localhost/mcp-exec-gateway"),
        "pool.image": os.environ.get("SANDBOX_IMAGE", "localhost/mcp-exec-sandbox:dev"),
        "pool.warm.min": "1",
        "pool.runtimeClassName": "NodeDefault",
        "pool.resources.requests.cpu": "10m",
        # not every cluster under test has volumes
        "broker.audit.persistence.enabled": "false",
        "broker.records.enabled": "false",
    }
    found = Release(cluster=cluster, values=tuple(f"--set={name}={value}" for name, value in values.items()))
    # What an interrupted run has left.
    cluster.run("helm", "uninstall", RELEASE, "--namespace", SYSTEM, check=False)
    cluster.delete("Namespace", SYSTEM, SERVED, seconds=GONE_SECONDS)
    found.helm("upgrade", "--install", "--create-namespace", "--wait")
    yield found
    cluster.run("helm", "uninstall", RELEASE, "--namespace", SYSTEM, check=False)
    cluster.delete("Namespace", SYSTEM, SERVED, wait=False)


def test_helms_own_test_runs_code_through_the_gateway(release: Release) -> None:
    release.cluster.wait_for("Ready", "SandboxPool", "default", namespace=SERVED, seconds=120)
    assert re.search(r"printed 1 in [0-9.]+ ms", release.helm("test", "--logs"))


def rows() -> list[tuple[str, str, str, str]]:
    """Account, place, resource and verb of every right in docs/reference/rbac.md."""
    found = []
    for line in (ROOT / "docs" / "reference" / "rbac.md").read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[1] in PLACES:
            account, place, group, resource, named, verbs = cells
            kind, _, part = resource.partition("/")
            full = (kind if group == "core" else f"{kind}.{group}") + (f"/{part}" if part else "")
            targets = [f"{full}:{name}" for name in re.findall(r"[^`, ]+", named)] or [full]
            found += [(account, place, target, verb) for target in targets for verb in verbs.split(", ")]
    return found


def test_every_right_in_the_table_is_given(release: Release) -> None:
    assert len(rows()) > 30

    def rename(resource: str) -> str:
        # each release has the same name for the policy of a namespace
        return re.sub("mcp-exec-(?!base$)", f"{FULLNAME}-", resource).replace(
            "namespaces:agents", f"namespaces:{SERVED}"
        )

    denied = [
        (account, place, resource, verb)
        for account, place, resource, verb in rows()
        if not release.may(account.replace("mcp-exec", FULLNAME), verb, rename(resource), *PLACES[place])
    ]
    assert denied == []


def test_what_is_not_in_the_table_is_refused(release: Release) -> None:
    allowed = [
        (account, namespace, verb, resource)
        for account, namespace, verb, resource in FORBIDDEN
        if release.may(
            f"{FULLNAME}-{account}",
            verb,
            resource,
            *(("--namespace", namespace) if namespace else ("--all-namespaces",)),
        )
    ]
    assert allowed == []


@pytest.mark.parametrize("path", sorted(CHART.glob("ci/*-values.yaml")), ids=lambda path: path.stem)
def test_the_api_server_accepts_every_object(release: Release, path: Path) -> None:
    """As another release in the same namespaces, so that no object of the first stands in the way."""
    text = release.cluster.run(
        "helm", "template", "other", str(CHART), "--namespace", SYSTEM, "--values", str(path),
        "--kube-version", release.kubernetes_version,
    ).stdout  # fmt: skip
    served = yaml.safe_load(path.read_text()) or {}
    for item in filter(None, yaml.safe_load_all(text)):
        if item["metadata"].get("namespace") in served.get("namespaces", ["agents"]):
            item["metadata"]["namespace"] = SERVED
        try:
            release.cluster.objects.validate(item)
        except ResourceNotFoundError:
            assert item["kind"].startswith(NOT_EVERYWHERE), item


def forged(kind: str) -> dict[str, Any]:
    """An object that an admission policy refuses."""
    metadata: dict[str, Any] = {"name": "forged", "namespace": SERVED}
    if kind == "CodeExecution":
        metadata["labels"] = {"mcp-exec.dev/caller": "another"}
        return {"apiVersion": "mcp-exec.dev/v1beta1", "kind": kind, "metadata": metadata, "spec": {"code": "1"}}
    if kind == "NetworkPolicy":
        spec: dict[str, Any] = {"podSelector": {}, "egress": [{}], "policyTypes": ["Egress"]}
        return {"apiVersion": "networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
    metadata["labels"] = {"app.kubernetes.io/name": "mcp-exec-sandbox"}
    container = {"name": "main", "image": "none.invalid/none:1", "securityContext": HARDENED}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("CodeExecution", "only the gateway may set"),
        ("Pod", "only the operator may create sandboxes"),
        ("NetworkPolicy", "could open sandboxes"),
    ],
)
def test_admission_policies_refuse_what_is_forged(release: Release, kind: str, said: str) -> None:
    version = VersionApi(release.cluster.objects.api).get_code()
    if int(re.sub(r"\D", "", version.minor)) < 30:
        pytest.skip("Kubernetes before 1.30 has no ValidatingAdmissionPolicies")

    def refused() -> bool:
        try:
            release.cluster.objects.create(forged(kind), dry_run=True)
        except ApiException as error:
            return said in str(error.body)
        return False

    eventually(refused, seconds=60, every=1, what="the policies are in effect")


def test_the_limits_of_a_served_namespace_hold(release: Release) -> None:
    def pod(**resources: Any) -> dict[str, Any]:
        container = {
            "name": "main", "image": "none.invalid/none:1", "resources": resources, "securityContext": HARDENED,
        }  # fmt: skip
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "greedy", "namespace": SERVED},
            "spec": {"automountServiceAccountToken": False, "containers": [container]},
        }

    assert "maximum memory usage per Container is 8Gi" in release.cluster.refusal(pod(limits={"memory": "9Gi"}))
    created = release.cluster.objects.create(pod(), dry_run=True)
    assert created["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "512Mi"}
    hard = release.cluster.get("ResourceQuota", f"{FULLNAME}-sandboxes", namespace=SERVED)["spec"]["hard"]
    assert hard == {"pods": "200", "limits.cpu": "200", "limits.memory": "150Gi"}


def test_an_upgrade_changes_the_pool_and_keeps_every_key(release: Release) -> None:
    before = {name: release.secret(name) for name in ("sandbox-key", "initial-api-key")}
    kept = release.secret("api-keys")["initial"]
    uid = release.pool()["metadata"]["uid"]
    entry = json.dumps({"sha256": hashlib.sha256(b"mcpx_x").hexdigest(), "namespace": SERVED})
    release.patch_keys({"billing": entry})
    release.helm("upgrade", "--set=pool.maxPods=11", "--set=gateway.maxWaitSeconds=60")
    assert {name: release.secret(name) for name in before} == before
    keys = release.secret("api-keys")
    assert keys["billing"] == entry
    initial = before["initial-api-key"]["api-key"]
    assert keys["initial"] == kept, "the key's expiry, too"
    assert json.loads(keys["initial"])["sha256"] == hashlib.sha256(initial.encode()).hexdigest()
    assert release.pool()["spec"]["maxPods"] == 11
    assert release.pool()["metadata"]["uid"] == uid
    release.helm("upgrade")
    assert release.pool()["spec"]["maxPods"] == 100


def test_a_rollback_does_not_bring_a_revoked_key_back(release: Release) -> None:
    release.patch_keys({"revoked": "{}"})
    release.helm("upgrade", "--set=logLevel=DEBUG")
    release.patch_keys({"revoked": None})
    release.helm("upgrade")
    release.cluster.run("helm", "rollback", RELEASE, "--namespace", SYSTEM)
    assert "revoked" not in release.secret("api-keys")
    release.helm("upgrade")


def test_the_initial_key_can_be_taken_away(release: Release) -> None:
    release.patch_keys({"other": "{}"})
    release.helm("upgrade", "--wait", "--set=gateway.initialApiKey.create=false")
    gone = KEYS - {"initial-api-key"}
    eventually(lambda: release.names_of_secrets() == gone, seconds=60, every=1, what="the key is revoked")
    assert "initial" not in release.secret("api-keys")
    assert "other" in release.secret("api-keys")
    release.helm("upgrade", "--wait")
    eventually(release.has_consistent_keys, seconds=60, every=1, what="there is a new key")
    assert "other" in release.secret("api-keys")


def test_keys_that_an_upgrade_or_a_user_deletes_come_back(release: Release) -> None:
    """Helm deletes the Secrets that an earlier chart had and this one has not."""
    before = release.secret("sandbox-key")
    first = release.secret("initial-api-key")["api-key"]
    release.cluster.delete("Secret", f"{FULLNAME}-sandbox-key", f"{FULLNAME}-initial-api-key", namespace=SYSTEM)
    eventually(release.has_consistent_keys, seconds=60, every=1, what="the operator has created them again")
    assert release.secret("sandbox-key") == before
    assert release.secret("initial-api-key")["api-key"] != first


def test_a_new_team_restarts_nothing(release: Release) -> None:
    team = f"{SERVED}-team"

    def processes() -> dict[str, list[int]]:
        pods = release.cluster.select("Pod", namespace=SYSTEM, labels="app.kubernetes.io/name=mcp-exec")
        return {
            f"{pod['metadata']['name']} {pod['metadata']['uid']}": [
                container["restartCount"] for container in pod["status"]["containerStatuses"]
            ]
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
        }

    def phase(namespace: str) -> str:
        found = release.cluster.get("CodeExecution", "team", namespace=namespace).get("status") or {}
        return str(found.get("phase"))

    for name in ("operator", "gateway", "broker"):  # what an earlier test has changed
        release.cluster.rolled_out(f"{FULLNAME}-{name}", namespace=SYSTEM, seconds=120)

    def sync() -> None:
        """Let the kubelet write the changed ConfigMap into the pods now, and not within two minutes."""
        where = ("-n", SYSTEM, "-l", "app.kubernetes.io/name=mcp-exec")
        release.cluster.kubectl("annotate", "pods", *where, "--overwrite", f"synced={secrets.token_hex(4)}")

    before = processes()
    release.helm("upgrade", "--wait", f"--set=namespaces={{{SERVED},{team}}}")
    sync()
    try:
        metadata = {"name": "team", "namespace": team}
        manifest = {"apiVersion": "mcp-exec.dev/v1beta1", "kind": "CodeExecution", "metadata": metadata}
        release.cluster.apply({**manifest, "spec": {"code": "print(1)", "timeoutSeconds": 60}})
        eventually(lambda: phase(team) == "Succeeded", seconds=240, every=1, what="the new team's code has run")
        assert processes() == before
        release.helm("upgrade", "--wait")
        sync()
        bindings = f"{FULLNAME}-operator-removal"
        eventually(
            lambda: bindings not in release.cluster.names("RoleBinding", namespace=team),
            seconds=240, every=1, what="the operator has left the namespace",
        )  # fmt: skip
        assert not release.cluster.select("Pod", namespace=team)
        assert processes() == before
    finally:
        release.cluster.delete("Namespace", team, seconds=GONE_SECONDS)


def test_another_manager_may_apply_the_release_on_the_server(release: Release) -> None:
    """As Argo CD and Flux do with `ServerSideApply`, over what Helm has applied."""

    def apply(*values: str) -> None:
        rendered = release.helm("template", f"--kube-version={release.kubernetes_version}", *values)
        objects = [item for item in yaml.safe_load_all(rendered) if item]
        applied = yaml.safe_dump_all(item for item in objects if "helm.sh/hook" not in str(item["metadata"]))
        options = ("--server-side", "--field-manager=another", "--force-conflicts", "--dry-run=server")
        release.cluster.kubectl("apply", *options, "-f", "-", stdin=applied)

    apply()
    # Helm owns the fields of strategy and volumes, which are others with a claim
    for options in (
        "broker.records.enabled=true,broker.records.volume.temporary=false",
        "broker.files.enabled=true,broker.files.volume.temporary=false",
        "broker.audit.persistence.enabled=true",
    ):
        apply(f"--set=broker.replicas=1,{options}")


def test_an_operator_that_starts_upgrades_earlier_definitions_and_leaves_newer_ones(release: Release) -> None:
    name = "sandboxpools.mcp-exec.dev"

    def columns() -> list[str]:
        found = release.cluster.get("CustomResourceDefinition", name)["spec"]["versions"][0]["additionalPrinterColumns"]
        return [column["name"] for column in found]

    def restart(version: str | None) -> None:
        """Restart the operators after the definition was written by a version."""
        change = {"metadata": {"annotations": {WRITTEN_BY: version}}}
        release.cluster.merge("CustomResourceDefinition", name, change)
        release.cluster.kubectl("rollout", "restart", f"deployment/{FULLNAME}-operator", "-n", SYSTEM)
        release.cluster.kubectl("rollout", "status", f"deployment/{FULLNAME}-operator", "-n", SYSTEM, "--timeout=3m")

    expected = columns()
    lacking: list[dict[str, Any]] = [{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns/0"}]
    release.cluster.objects.patch("CustomResourceDefinition", name, lacking, namespace=None, way=JSON_PATCH)
    restart("99.0.0")
    assert columns() == expected[1:]
    restart(None)
    assert columns() == expected
    annotations = release.cluster.get("CustomResourceDefinition", name)["metadata"]["annotations"]
    assert annotations[WRITTEN_BY] == version.RELEASE


def no_sandbox_is_left(cluster: Cluster) -> None:
    left: list[Any] = []

    def none() -> bool:
        left[:] = cluster.select("Pod", namespace=SERVED)
        return not left

    try:
        eventually(none, seconds=GONE_SECONDS, every=0.5, what="no sandbox")
    except AssertionError:
        raise AssertionError(json.dumps([[pod["metadata"], pod["status"]] for pod in left])) from None


def test_uninstalling_leaves_definitions_executions_and_keys_and_a_new_release_takes_over(release: Release) -> None:
    execution = {
        "apiVersion": "mcp-exec.dev/v1beta1",
        "kind": "CodeExecution",
        "metadata": {"name": "kept", "namespace": SERVED},
        "spec": {"code": "print(1)"},
    }
    release.cluster.apply(execution)
    release.cluster.wait_for("Finished", "CodeExecution", "kept", namespace=SERVED, seconds=90)
    release.patch_keys({"billing": "{}"})
    release.helm("uninstall")
    assert "codeexecutions.mcp-exec.dev" in release.cluster.names("CustomResourceDefinition")
    assert release.cluster.get("CodeExecution", "kept", namespace=SERVED)["status"]["phase"] == "Succeeded"
    assert "billing" in release.secret("api-keys")
    assert release.cluster.select("SandboxPool", namespace=SERVED) == []
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        assert not [name for name in release.cluster.names(kind) if FULLNAME in name]
    no_sandbox_is_left(release.cluster)
    eventually(lambda: release.names_of_secrets() == {"api-keys"}, seconds=60, every=1, what="the other keys are gone")
    release.helm("install", "--wait")
    assert release.pool()["spec"]["image"]
    assert "billing" in release.secret("api-keys")
    eventually(release.has_consistent_keys, seconds=60, every=1, what="there is a new initial key")
