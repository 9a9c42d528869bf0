"""`mcp-exec doctor` of a release with and without its processes: the chart's objects on a real API server."""

import json
import tarfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.component.chart.conftest import Object, Render, helm4, render
from tests.component.gateway.conftest import CEX, KEY, serving
from tests.component.gateway.test_doctor import Seen, doctor
from tests.support.api_server import FakeApiServer
from tests.support.broker import running_broker
from tests.support.control_plane import ROOT, ControlPlane, running_control_plane

from mcp_exec_api.meta import micro_time, now

__all__ = ["helm4", "render"]

SYSTEM = "mcp-exec-system"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
OWN = "/apis/mcp-exec.dev/v1beta1/namespaces/agents"
KINDS = {"Namespace", "ConfigMap", "Deployment", "SandboxPool", "ToolServer", "ClusterRole", "Role", "RoleBinding"}
COMPONENTS = ("operator", "gateway", "broker")
WARM = {"type": "Ready", "status": "True", "reason": "Warm", "message": "3 of 3 pods are warm"}
READY = {"conditions": [{**WARM, "lastTransitionTime": "2026-11-28T20:00:00Z"}]}
MERGE = {"Content-Type": "application/merge-patch+json"}
TENANT = "tenant"


class Release:
    """The objects of a release whose processes run only if the test says so."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def patch(self, path: str, body: Object) -> None:
        with self.plane.connect() as client:
            answer = client.patch(path, content=json.dumps(body), headers=MERGE)
        assert answer.status_code == 200, answer.text

    def scale(self, component: str, *, replicas: int = 1, ready: int = 1, refused: str = "") -> None:
        """Scale a Deployment, with the status that the controllers of a cluster would write."""
        path = f"{DEPLOYMENTS}/mcp-exec-{component}"
        condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": refused}
        status = {"replicas": ready, "readyReplicas": ready, "conditions": [condition] if refused else None}
        self.patch(path, {"spec": {"replicas": replicas}})
        self.patch(f"{path}/status", {"status": status})

    def renew(self, namespace: str, name: str, *, seconds_ago: float = 0, holder: str = "") -> None:
        """Write a Lease as an operator did that many seconds ago."""
        at = micro_time(now() - timedelta(seconds=seconds_ago))
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": holder or f"{SYSTEM}/mcp-exec-operator", "renewTime": at},
        }
        headers = {"Content-Type": "application/apply-patch+yaml"}
        with self.plane.connect() as client:
            path, params = f"{LEASES.format(namespace)}/{name}", {"fieldManager": "it", "force": "true"}
            answer = client.patch(path, content=json.dumps(lease), headers=headers, params=params)
        assert answer.status_code in (200, 201), answer.text

    def run_all(self) -> None:
        """Make all processes run."""
        for component in COMPONENTS:
            self.scale(component)
        self.renew("agents", "mcp-exec")
        self.renew(SYSTEM, "mcp-exec-operator", holder="pod-a")


def apply(plane: ControlPlane, *items: Object) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
    applied = plane.kubectl("apply", "--server-side", "--validate=false", "-f", "-", input=body)
    assert applied.returncode == 0, applied.stderr


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, render: Render) -> Iterator[ControlPlane]:
    rendered = render({"toolServers": {"github": {"url": "https://mcp.example.com"}}})
    objects = [each for each in rendered.objects if each["kind"] in KINDS]
    with running_control_plane(tmp_path_factory.mktemp("plane")) as made:
        made.kubectl("create", "namespace", SYSTEM)
        crds = made.kubectl("apply", "--server-side", "--validate=false", "-f", str(ROOT / "charts/mcp-exec/crds"))
        assert crds.returncode == 0, crds.stderr
        assert made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s").returncode == 0
        apply(made, *(each for each in objects if each["kind"] == "Namespace"))
        apply(made, *(each for each in objects if each["kind"] != "Namespace"))
        made.kubectl("create", "rolebinding", TENANT, "-n", "agents", "--clusterrole=mcp-exec-viewer",
                     f"--user={TENANT}")  # fmt: skip
        yield made


@pytest.fixture
def release(plane: ControlPlane) -> Release:
    made = Release(plane)
    made.run_all()
    made.patch(f"{OWN}/sandboxpools/default/status", {"status": READY})
    made.patch(f"{OWN}/toolservers/github/status", {"status": {"available": True, "tools": 3}})
    return made


def problems(seen: Seen) -> list[str]:
    return [line.partition(":")[0].split(maxsplit=1)[1] for line in seen.lines if line.startswith("problem")]


STOPPED = pytest.mark.parametrize(
    "stopped", [(), ("operator",), ("broker",), ("operator", "broker")], ids=lambda value: "+".join(value) or "none"
)


@STOPPED
async def test_what_is_scaled_to_0_is_named_and_the_status_that_it_wrote_is_not_believed(
    release: Release, stopped: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for component in stopped:
        release.scale(component, replicas=0, ready=0)
    seen = await doctor(capsys, "--kubeconfig", release.plane.kubeconfig)
    assert problems(seen) == [f"{component} pods" for component in stopped]
    for component in COMPONENTS:
        scale = f"kubectl scale deployment mcp-exec-{component} -n {SYSTEM} --replicas=1"
        assert seen.about(f"{component} pods") == (
            f"problem  {component} pods: Deployment mcp-exec-{component} is scaled to 0 replicas -> {scale}"
            if component in stopped
            else f"ok       {component} pods: 1 of 1 are ready"
        )
    stale = "its status is not up to date, since no {} runs"
    assert seen.about("pool default").endswith(
        stale.format("operator") if "operator" in stopped else "3 of 3 pods are warm"
    )
    assert seen.about("toolserver github").endswith(stale.format("broker") if "broker" in stopped else "3 tools")
    assert (seen.end == "0") == (not stopped)


@STOPPED
async def test_with_a_gateway_only_what_can_run_is_tried(
    release: Release, api: FakeApiServer, stopped: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for component in stopped:
        release.scale(component, replicas=0, ready=0)
    async with running_broker(api), serving(api, broker_service="mcp-exec-broker") as gateway:
        if "broker" in stopped:
            api.collections["/apis/discovery.k8s.io/v1/namespaces/mcp-exec-system/endpointslices"].clear()
        gateway.finish_all(duration="12ms")
        access = ("--gateway", gateway.url, "--api-key", KEY)
        seen = await doctor(capsys, *access, "--kubeconfig", release.plane.kubeconfig)
        runs = gateway.executions
    assert [each for each in problems(seen) if each.endswith("pods")] == [f"{each} pods" for each in stopped]
    assert ("skipped  trial run: no operator runs" in "\n".join(seen.lines)) == ("operator" in stopped)
    assert len(runs) == ("operator" not in stopped)
    assert seen.end == ("0" if not stopped else seen.end)


async def test_a_gateway_alone_finds_that_no_operator_runs(
    api: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def wait(collection: str, item: dict[str, Any]) -> None:
        if collection == CEX:
            api.merge(CEX, item["metadata"]["name"], {"status": {"phase": "Pending", "reason": "NotObserved"}})

    async with serving(api) as gateway:
        api.on_create = wait
        seen = await doctor(capsys, "--gateway", gateway.url, "--api-key", KEY, "--timeout", "1")
    assert "Pending NotObserved -> check that the operator runs: `mcp-exec doctor --kubeconfig" in seen.about("trial")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"ready": 0, "refused": 'pods "x" is forbidden: exceeded quota: system'}, "forbidden: exceeded quota: system"),
        ({"ready": 0}, "no pod was created; kubectl describe replicasets shows why"),
    ],
)
async def test_pods_that_do_not_exist_are_explained(
    release: Release, capsys: pytest.CaptureFixture[str], fault: Object, said: str
) -> None:
    release.scale("broker", **fault)
    seen = await doctor(capsys, "--kubeconfig", release.plane.kubeconfig)
    assert f"none of 1 is ready: {said}" in seen.about("broker pods").replace('pods "x" is ', "")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}]},
            "pod operator-x: Unschedulable: full",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "operator", "image": "i", "imageID": "", "ready": False, "restartCount": 3,
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                        "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}},
                    }
                ]
            },
            "pod operator-x: CrashLoopBackOff: back-off (exit code 2, Error)",
        ),
        ({}, "pod operator-x is not ready"),
    ],
)  # fmt: skip
async def test_pods_that_are_not_ready_are_explained(
    release: Release, capsys: pytest.CaptureFixture[str], status: Object, said: str
) -> None:
    release.scale("operator", ready=0)
    pods = f"/api/v1/namespaces/{SYSTEM}/pods"
    with release.plane.connect() as client:
        client.post(f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", json={"metadata": {"name": "default"}})
        labels = client.get(f"{DEPLOYMENTS}/mcp-exec-operator").json()["spec"]["selector"]["matchLabels"]
        pod = {
            "metadata": {"name": "operator-x", "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        made = client.post(pods, json=pod)
        assert made.status_code == 201, made.text
    try:
        release.patch(f"{pods}/operator-x/status", {"status": status})
        seen = await doctor(capsys, "--kubeconfig", release.plane.kubeconfig)
    finally:
        with release.plane.connect() as client:
            client.delete(f"{pods}/operator-x", params={"gracePeriodSeconds": "0"})
    assert f"none of 1 is ready: {said}" in seen.about("operator pods")


@pytest.mark.parametrize(
    ("lease", "said"),
    [
        ({"seconds_ago": 240, "holder": "pod-a"}, "the last renewal of the Lease mcp-exec-operator was 4 min ago"),
        ({"holder": ""}, "nobody holds the Lease mcp-exec-operator"),
    ],
)
async def test_operators_of_which_none_leads_are_a_problem(
    release: Release, capsys: pytest.CaptureFixture[str], lease: Object, said: str
) -> None:
    release.renew(SYSTEM, "mcp-exec-operator", **lease)
    if not lease["holder"]:
        path = f"{LEASES.format(SYSTEM)}/mcp-exec-operator"
        release.patch(path, {"spec": {"holderIdentity": None}})
    seen = await doctor(capsys, "--kubeconfig", release.plane.kubeconfig)
    assert f"no pod leads: {said}" in seen.about("operator pods")


@pytest.mark.parametrize(("seconds", "result"), [(20, "ok"), (240, "problem")])
async def test_a_tenant_sees_by_the_namespaces_lease_whether_an_operator_runs(
    release: Release, capsys: pytest.CaptureFixture[str], seconds: float, result: str
) -> None:
    release.renew("agents", "mcp-exec", seconds_ago=seconds)
    seen = await doctor(capsys, "--kubeconfig", release.plane.build_kubeconfig_for(TENANT))
    assert seen.about("operator").split()[0] == result
    assert "mcp-exec-system/mcp-exec-operator renewed the Lease mcp-exec of namespace agents" in seen.about("operator")
    assert seen.about("pods of the release").startswith("skipped")


async def test_a_namespace_that_the_release_does_not_name_is_a_problem(
    release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = await doctor(capsys, "--kubeconfig", release.plane.kubeconfig, "-n", "default")
    assert "the release mcp-exec-system/mcp-exec does not serve namespace default -> use one of agents" in seen.about(
        "operator"
    )


async def test_a_bundle_has_report_versions_and_objects_and_no_credentials(
    release: Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = {"spec": {"template": {"spec": {"containers": [
        {"name": "broker", "env": [{"name": "TOKEN", "value": "s3cret"}]}]}}}}  # fmt: skip
    with release.plane.connect() as client:
        strategic = {"Content-Type": "application/strategic-merge-patch+json"}
        client.patch(f"{DEPLOYMENTS}/mcp-exec-broker", content=json.dumps(secret), headers=strategic)
    release.scale("operator", replicas=0, ready=0)
    file = tmp_path / "bundle.tar.gz"
    seen = await doctor(capsys, "--kubeconfig", release.plane.kubeconfig, "--bundle", file)
    assert seen.about("bundle").startswith(f"ok       bundle: {file} has ")
    assert (seen.end, file.stat().st_mode & 0o777) == ("mcp-exec: 1 problem", 0o600)
    with tarfile.open(file) as archive:
        texts = {each.name: archive.extractfile(each).read().decode() for each in archive}  # type: ignore[union-attr]
    assert "Deployment mcp-exec-operator is scaled to 0" in texts["mcp-exec-doctor/report.txt"]
    assert json.loads(texts["mcp-exec-doctor/versions.json"])["kubernetes"]["gitVersion"].startswith("v1.")
    assert "mcp-exec-broker" in texts["mcp-exec-doctor/release/deployments.json"]
    assert '"MCP_EXEC_RELEASE_LABEL"' in texts["mcp-exec-doctor/release/deployments.json"]
    assert "mcp-exec-system.mcp-exec" in texts["mcp-exec-doctor/release/deployments.json"]
    assert "3 of 3 pods are warm" in texts["mcp-exec-doctor/namespace/sandboxpools.json"]
    assert not any("s3cret" in text or "managedFields" in text for text in texts.values())
    assert not any("/secrets" in name for name in texts)
    again = await doctor(capsys, "--kubeconfig", release.plane.kubeconfig, "--bundle", file)
    assert again.end == f"mcp-exec: --bundle {file} exists: name a new file"
