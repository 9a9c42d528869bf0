"""The chart of a release without Helm: manifests, the base of kustomize, the list of images."""

import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hack.artifacts import chart
from tests.component.artifacts.conftest import IMAGES, RELEASED, ROOT
from tests.support.pace import paced

from mcp_exec_api.wire.version import RELEASE

REPOSITORY = "registry.example/mcp-exec"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a release writes."""
    folder = tmp_path_factory.mktemp("manifests")
    packaged = chart.package(folder, "mcp-exec", repository=REPOSITORY)
    chart.write_manifests(folder, chart.render(packaged), version=RELEASE)
    return folder


def read(*texts: str) -> list[dict[str, Any]]:
    return [item for text in texts for item in yaml.safe_load_all(text) if item]


def names(objects: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    found = ((item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in objects)
    return sorted(found)


def test_the_manifests_are_what_helm_renders_without_hooks_and_a_namespace(folder: Path) -> None:
    tools = subprocess.run([ROOT / "hack/tools", "helm"], check=True, capture_output=True, text=True).stdout.strip()
    (archive,) = folder.glob("mcp-exec-*.tgz")
    options = ("--namespace", chart.SYSTEM, "--include-crds", "--no-hooks", "--kube-version", "1.34.0")
    done = subprocess.run(
        ["sh", "-c", f'PATH="$PATH:{tools}" exec "$@"', "sh", "helm", "template", "mcp-exec", archive, *options],
        check=True, capture_output=True, text=True, timeout=paced(60),
    )  # fmt: skip
    written = read(*((folder / name).read_text() for name in ("crds.yaml", "install.yaml")))
    assert names(written) == sorted([*names(read(done.stdout)), ("Namespace", "", chart.SYSTEM)])
    by_name = {names([item])[0]: item for item in written}
    assert {names([item])[0]: item for item in read(done.stdout)}.items() <= by_name.items()


def test_each_namespace_is_created_before_what_is_in_it_and_pods_after_their_policies(folder: Path) -> None:
    kinds = [item["kind"] for item in read((folder / "install.yaml").read_text())]
    assert kinds[:2] == ["Namespace", "Namespace"]
    assert kinds.count("Namespace") == 2
    others = {kind: kinds.index(kind) for kind in ("NetworkPolicy", "ServiceAccount", "Deployment", "SandboxPool")}
    assert sorted(others, key=lambda kind: others[kind]) == [*others]
    assert {item["kind"] for item in read((folder / "crds.yaml").read_text())} == {"CustomResourceDefinition"}


def test_the_base_of_kustomize_builds_the_same_objects(folder: Path, tmp_path: Path) -> None:
    subprocess.run([ROOT / "hack/tools", "kubectl"], check=True, capture_output=True, timeout=paced(300))
    with tarfile.open(folder / f"mcp-exec-kustomize-{RELEASE}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    built = subprocess.run(
        ["kubectl", "kustomize", tmp_path / "mcp-exec"], check=True, capture_output=True, text=True, timeout=paced(60)
    )
    assert names(read(built.stdout)) == names(read((folder / "install.yaml").read_text()))
    crds = tmp_path / "mcp-exec/crds.yaml"
    assert crds.read_text() == (folder / "crds.yaml").read_text()


def test_the_images_of_an_overlay_reach_pools_servers_and_bridges(tmp_path: Path) -> None:
    digests = {name: f"sha256:{number:064x}" for number, name in enumerate(IMAGES)}
    packaged = chart.package(tmp_path, "mcp-exec", repository=REPOSITORY, digests=digests)
    objects = chart.render(packaged, {"demoServers": {"calculator": {"enabled": True}}, "prePull": {"enabled": True}})
    chart.write_manifests(tmp_path, objects, version=RELEASE)
    with tarfile.open(tmp_path / f"mcp-exec-kustomize-{RELEASE}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "overlay").mkdir()

    def build(**change: str) -> list[str]:
        images = [{"name": f"{REPOSITORY}/mcp-exec-{name}", "newName": f"own/{name}", **change} for name in IMAGES]
        overlay = {"resources": ["../mcp-exec"], "images": images}
        (tmp_path / "overlay/kustomization.yaml").write_text(yaml.safe_dump(overlay))
        command = ["kubectl", "kustomize", tmp_path / "overlay"]
        built = subprocess.run(command, check=True, capture_output=True, text=True, timeout=paced(60)).stdout
        assert REPOSITORY not in built
        found = re.findall(r"(?:image|value): (own/\S+)", built)
        kinds = {item["kind"] for item in read(built) if "own/" in yaml.safe_dump(item)}
        assert kinds == {"DaemonSet", "Deployment", "SandboxPool", "ToolServer"}
        return sorted(found)

    subprocess.run([ROOT / "hack/tools", "kubectl"], check=True, capture_output=True, timeout=paced(300))
    # the bridge's image is a variable of the operator and the image of a server; the sandbox's that of a pool's pods
    used = sorted([*IMAGES, "servers", "sandbox"])
    assert build() == [f"own/{name}:{RELEASE}@{digests[name]}" for name in used]
    own = f"sha256:{'f' * 64}"
    assert build(digest=own) == [f"own/{name}@{own}" for name in used]


@pytest.mark.parametrize("values", sorted((ROOT / "charts/mcp-exec/ci").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_list_has_each_image_of_the_release_that_the_chart_uses(folder: Path, values: Path) -> None:
    (archive,) = folder.glob("mcp-exec-*.tgz")
    listed = chart.list_images(chart.render(archive, chart.ALL_POOLS), repository=REPOSITORY)
    assert listed == sorted(f"{REPOSITORY}/mcp-exec-{name}:{RELEASE}" for name in RELEASED)
    own = yaml.safe_load(values.read_text()) or {}
    used = chart.list_images(chart.render(archive, {**own, "images": {}}), repository=REPOSITORY)
    # the image of the pool `data` is built apart
    assert set(used) - {f"{REPOSITORY}/mcp-exec-data:{RELEASE}"} <= set(listed)


def test_the_header_says_how_the_manifest_was_made_and_the_chart_has_nothing_of_the_tests(folder: Path) -> None:
    assert (folder / "install.yaml").read_text().splitlines()[:2] == [
        f"# mcp-exec {RELEASE}: what its chart renders for the namespace mcp-exec-system without values, apart from "
        "hooks.",
        "# kubectl apply --server-side -f install.yaml",
    ]
    with tarfile.open(next(folder.glob("mcp-exec-[0-9]*.tgz"))) as archive:
        assert not [name for name in archive.getnames() if name.startswith("mcp-exec/ci/")]
