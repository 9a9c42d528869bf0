"""The chart of a release, and what it renders: static manifests, a kustomize base, and the list of its images."""

import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import helm_python
import yaml
from hack.artifacts.places import LOCAL, ROOT, read_places

Object = dict[str, Any]
NAMES: Final = ("mcp-exec", "mcp-exec-cluster")
"""The whole chart, and the part of it for administrators."""
SYSTEM: Final = "mcp-exec-system"
ALL_POOLS: Final[Mapping[str, Any]] = {"typescriptPool": {"enabled": True}}
"""Values that enable each pool whose image belongs to a release."""
_ORDER: Final = (
    "Namespace",
    "NetworkPolicy",
    "ServiceAccount",
    "ConfigMap",
    "",
    "Deployment",
    "SandboxPool",
    "ToolServer",
)
"""kubectl creates objects in the order of the file: what others need first, and pods behind their policies."""
_HEADER: Final = """\
# mcp-exec {version}: what its chart renders for the namespace {system} without values, apart from hooks.
# {how}
"""
_BASE: Final = """\
# A base of kustomize. Apply crds.yaml first: the API server refuses a SandboxPool until it serves the type.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- install.yaml
# `images` of an overlay also change the images of pools and tool servers, and the one of stdio servers' bridges.
configurations:
- images.yaml
"""
_IMAGE_FIELDS: Final = """\
images:
- {kind: SandboxPool, path: spec/image}
- {kind: ToolServer, path: spec/stdio/image}
- {kind: Deployment, path: "spec/template/spec/containers[]/env[]/value"}
"""


def package(folder: Path, name: str, *, repository: str, digests: Mapping[str, str] | None = None) -> Path:
    """Package a chart into a folder, with the repository of the release's images as its default; return its path.

    With `digests` of images by their names, such as `operator`, the chart pulls these.
    """
    with TemporaryDirectory() as work:
        copy = Path(work) / name
        shutil.copytree(ROOT / "charts" / name, copy)
        values = copy / "values.yaml"
        default = f"\n  repository: {LOCAL}\n"
        text = values.read_text()
        if text.count(default) != 1:
            raise ValueError(f"{values.name} must have one line `repository: {LOCAL}`")
        values.write_text(text.replace(default, f"\n  repository: {repository}\n"))
        if source := read_places().source:
            known = {"home": source, "sources": [source], "maintainers": [{"name": "mcp-exec", "url": source}]}
            with (copy / "Chart.yaml").open("a") as about:
                about.write(yaml.safe_dump(known, sort_keys=False))
        if digests:
            (copy / "files" / "digests.json").write_text(json.dumps(digests, indent=1) + "\n")
        return Path(helm_python.package(str(copy), destination=str(folder)))


def render(
    chart: Path, values: Mapping[str, Any] | None = None, *, name: str = "mcp-exec", namespace: str = SYSTEM
) -> list[Object]:
    """Return the objects of a packaged chart as a release in a namespace has them, CRDs included.

    Hooks are left out, since only Helm runs them, and what Kubernetes serves only from 1.36 on.
    """
    with helm_python.Chart.load(str(chart)) as loaded:
        crds = [each["data"] for each in loaded.crds]
        rendered = loaded.render(dict(values or {}), name=name, namespace=namespace)
    texts = [*crds, *(text for name, text in sorted(rendered.items()) if name.endswith(".yaml"))]
    found = [item for text in texts for item in yaml.safe_load_all(text) if item]
    served = [item for item in found if not item["kind"].startswith("MutatingAdmissionPolicy")]
    kept = [item for item in served if "helm.sh/hook" not in item["metadata"].get("annotations", {})]
    return sorted(kept, key=lambda item: _ORDER.index(item["kind"] if item["kind"] in _ORDER else ""))


def list_images(objects: Iterable[Object], *, repository: str) -> list[str]:
    """Return the images of the release that objects name, as containers, pools or arguments."""
    pattern = re.compile(rf"(?<![\w./-]){re.escape(repository)}/mcp-exec-[a-z-]+:[\w.-]+(?:@sha256:[0-9a-f]{{64}})?")
    return sorted({image for item in objects for image in pattern.findall(yaml.safe_dump(item, width=10_000))})


def write_manifests(folder: Path, objects: list[Object], *, version: str, namespace: str = SYSTEM) -> None:
    """Write crds.yaml and install.yaml, for kubectl, and a kustomize base of both."""
    is_crd = [item["kind"] == "CustomResourceDefinition" for item in objects]
    crds = [item for item, found in zip(objects, is_crd, strict=True) if found]
    others = [item for item, found in zip(objects, is_crd, strict=True) if not found]
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    how = "kubectl apply --server-side -f {}"
    texts = {
        "crds.yaml": _dump(crds, version, how.format("crds.yaml") + ", before install.yaml"),
        "install.yaml": _dump([system, *others], version, how.format("install.yaml")),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    with tarfile.open(folder / f"mcp-exec-kustomize-{version}.tar.gz", "w:gz") as archive:
        for name, text in {"kustomization.yaml": _BASE, "images.yaml": _IMAGE_FIELDS, **texts}.items():
            content = text.encode()
            member = tarfile.TarInfo(f"mcp-exec/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _dump(objects: list[Object], version: str, how: str) -> str:
    header = _HEADER.format(version=version, system=SYSTEM, how=how)
    return header + yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, width=120)
