"""A release from a registry: made in a clone of the checkout, installed by its version, run, and uninstalled.

The nodes pull its images by their digests from a registry of this machine; nothing of the checkout is loaded into them.
"""

import json
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from hack.artifacts import chart

from mcp_exec_api.wire.version import RELEASE
from tests.e2e.objects import Object
from tests.e2e.providers import Provider
from tests.e2e.support import ROOT, Cluster, execution_manifest
from tests.support.releases import clone_checkout, git, make_release, running_registry
from tests.support.until import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
MAJOR, MINOR, *_ = RELEASE.split(".")
VERSION = f"{MAJOR}.{int(MINOR) + 1}.0-rc.1"
NAME, SYSTEM, AGENTS = "released", "released-system", "released-agents"
FULLNAME = f"{NAME}-mcp-exec"
KEPT = {
    f"namespace/{AGENTS}",
    f"secret/{FULLNAME}-api-keys",
    f"lease.coordination.k8s.io/{FULLNAME}-operator",
    f"pod/{FULLNAME}-test",
}
"""What remains, as the chart's README says, apart from CRDs and executions."""
IGNORED = re.compile(r"event|serviceaccount/default$|configmap/\S+-ca\.crt$|secret/default-token-")
"""What Kubernetes makes in each namespace."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """The release in the registry."""

    registry: str
    digests: frozenset[str]
    """Of its images."""
    folder: Path
    """With its artifacts."""
    tools: str
    """PATH with the programs that the machine does not have."""


@pytest.fixture(scope="module")
def published(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """Make the release and push it, signed."""
    if not provider.runs_here:
        pytest.skip("the nodes do not reach a registry of this machine")
    folder = tmp_path_factory.mktemp("published")
    tools = subprocess.run(
        [ROOT / "hack/tools", "cosign", "docker-registry", "helm"], check=True, capture_output=True, text=True
    ).stdout.strip()
    environment = {"PATH": f"{os.environ['PATH']}{os.pathsep}{tools}", "COSIGN_PASSWORD": "secret"}
    subprocess.run(["cosign", "generate-key-pair"], cwd=folder, env=environment, check=True, capture_output=True)
    clone = clone_checkout(folder / "clone")
    (clone / "changes/+release.added.md").write_text("A release.\n")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "a change")
    with running_registry(folder, environment) as address:
        registry = f"{address}/mcp-exec"
        done = make_release(
            clone, VERSION, "--checks", "", "--build", "wheels images chart", "--registry", registry,
            seconds=1200, COSIGN_KEY=str(folder / "cosign.key"), **environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        lines = (clone / "build/release" / VERSION / "images.txt").read_text().split()
        assert all(line.startswith(f"{registry}/mcp-exec-") and f":{VERSION}@sha256:" in line for line in lines)
        for line in lines:
            verify = ["cosign", "verify", "--key", str(folder / "cosign.pub"), "--insecure-ignore-tlog", line]
            subprocess.run(verify, env=environment, check=True, capture_output=True)
        yield Published(
            registry=registry,
            digests=frozenset(line.partition("@")[2] for line in lines),
            folder=clone / "build/release" / VERSION,
            tools=environment["PATH"],
        )


@pytest.fixture(scope="module")
def released(cluster: Cluster, published: Published, runtimes: dict[str, str | None]) -> Iterator[Cluster]:
    """The cluster with the release."""
    remove(cluster)
    cluster.helm(
        "install", NAME, f"oci://{published.registry}/mcp-exec", "--version", VERSION, "--namespace", SYSTEM,
        "--create-namespace", "--wait", "--timeout", "5m", f"--set=namespaces={{{AGENTS}}}",
        f"--set=pool.runtimeClassName={runtimes.get('gvisor') or 'NodeDefault'}",
        # not every cluster under test has volumes
        "--set=broker.audit.persistence.enabled=false", "--set=broker.records.enabled=false",
    )  # fmt: skip
    yield cluster
    remove(cluster)


def remove(cluster: Cluster) -> None:
    cluster.run("helm", "uninstall", NAME, "--namespace", SYSTEM, check=False)
    cluster.delete("Namespace", SYSTEM, AGENTS, seconds=420)


def find_left(cluster: Cluster) -> set[str]:
    """Return all objects of the release's namespace, and all others that are labelled as its own."""
    found: set[str] = set()
    for scope, options in ((True, ("-n", SYSTEM)), (False, ("-l", f"app.kubernetes.io/instance={NAME}"))):
        kinds = cluster.kubectl("api-resources", "--verbs=list", f"--namespaced={str(scope).lower()}", "-o", "name")
        found |= set(cluster.kubectl("get", ",".join(kinds.split()), "-o", "name", *options).split())
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--namespaced=true", "-o", "name")
    labelled = ("-n", AGENTS, "-l", f"app.kubernetes.io/instance={NAME}", "-o", "name")
    found |= set(cluster.kubectl("get", ",".join(kinds.split()), *labelled).split())
    return {name for name in found if not IGNORED.match(name)}


def find_asked(pods: list[Object], repository: str = "") -> AbstractSet[str]:
    """Return the digests by which pods name their images, all of which are in the repository."""
    images = [each["image"] for pod in pods for each in pod["spec"]["containers"]]
    assert all(image.startswith(repository) for image in images), images
    return {image.partition("@")[2] for image in images}


def test_a_release_is_installed_by_its_version_runs_code_and_leaves_what_it_says(
    released: Cluster, published: Published
) -> None:
    released.wait_for("Ready", "SandboxPool", "default", namespace=AGENTS, seconds=180)
    pods = [pod for namespace in (SYSTEM, AGENTS) for pod in released.select("Pod", namespace=namespace)]
    used = {status["imageID"].rpartition("@")[2] for pod in pods for status in pod["status"]["containerStatuses"]}
    assert len(used) == 4  # no stdio server is there
    assert used <= published.digests
    assert find_asked(pods) <= published.digests

    released.apply(execution_manifest(name="first", namespace=AGENTS, code="print(6 * 7)"))
    released.wait_for("Finished", "CodeExecution", "first", namespace=AGENTS, seconds=90)
    assert released.get("CodeExecution", "first", namespace=AGENTS)["status"]["output"]["stdout"] == "42\n"
    released.run("helm", "test", NAME, "--namespace", SYSTEM)
    version = json.loads(released.run("helm", "list", "--namespace", SYSTEM, "-o", "json").stdout)[0]
    assert (version["chart"], version["app_version"]) == (f"mcp-exec-{VERSION}", VERSION)

    released.run("helm", "uninstall", NAME, "--namespace", SYSTEM, "--wait", "--timeout", "5m")
    eventually(lambda: not released.names("Pod", namespace=AGENTS), seconds=180, every=0.5, what="no sandbox is left")
    # its processes end after the requests that they serve
    ending = {f"{FULLNAME}-test"}
    eventually(lambda: released.names("Pod", namespace=SYSTEM) == ending, seconds=400, every=0.5, what="all pods ended")
    assert find_left(released) == KEPT
    assert "first" in released.names("CodeExecution", namespace=AGENTS)


@pytest.fixture
def overlaid(
    cluster: Cluster, published: Published, runtimes: dict[str, str | None], tmp_path: Path
) -> Iterator[tuple[Cluster, str]]:
    """The cluster with an overlay on the kustomize base, whose images are those of a mirror, and the mirror."""
    mirror = published.registry.replace("/mcp-exec", "/mirror")
    variables = {"FROM": published.registry, "TO": mirror, "VERSION": VERSION, "PATH": published.tools}
    subprocess.run([ROOT / "hack/mirror"], env={**os.environ, **variables}, check=True, capture_output=True)
    values = {
        "namespaces": [AGENTS],
        "pool": {"runtimeClassName": runtimes.get("gvisor") or "NodeDefault"},
        "broker": {"audit": {"persistence": {"enabled": False}}, "records": {"enabled": False}},
        "demoServers": {"calculator": {"enabled": True}},
    }
    objects = chart.render(published.folder / f"mcp-exec-{VERSION}.tgz", values, name=NAME, namespace=SYSTEM)
    chart.write_manifests(tmp_path, objects, version=VERSION, namespace=SYSTEM)
    with tarfile.open(tmp_path / f"mcp-exec-kustomize-{VERSION}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    names = [f"mcp-exec-{name}" for name in ("sandbox", "operator", "gateway", "broker", "servers")]
    images = [{"name": f"{published.registry}/{name}", "newName": f"{mirror}/{name}"} for name in names]
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay/kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["../mcp-exec"], "images": images})
    )
    remove(cluster)
    overlay = ("--server-side", "--force-conflicts", "-k", str(tmp_path / "overlay"))
    cluster.kubectl("apply", *overlay)
    yield cluster, mirror
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-k", str(tmp_path / "overlay"))
    cluster.delete("Namespace", SYSTEM, AGENTS, seconds=420)


def test_an_overlay_that_changes_all_images_runs_them_by_digest(
    overlaid: tuple[Cluster, str], published: Published
) -> None:
    cluster, mirror = overlaid
    cluster.wait_for("Ready", "SandboxPool", "default", namespace=AGENTS, seconds=300)
    cluster.wait_for("Ready", "ToolServer", "calculator", namespace=AGENTS, seconds=300)
    pods = [pod for namespace in (SYSTEM, AGENTS) for pod in cluster.select("Pod", namespace=namespace)]
    assert find_asked(pods, mirror) == published.digests
    cluster.apply(execution_manifest(name="overlaid", namespace=AGENTS, code="print(6 * 7)"))
    cluster.wait_for("Finished", "CodeExecution", "overlaid", namespace=AGENTS, seconds=90)
    assert cluster.get("CodeExecution", "overlaid", namespace=AGENTS)["status"]["output"]["stdout"] == "42\n"
