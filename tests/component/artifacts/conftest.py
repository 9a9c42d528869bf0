"""A registry of this machine, a key, and a release of tiny images in it."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hack.artifacts import chart
from tests.support.constants import DEADLINE
from tests.support.releases import ROOT, running_registry

from mcp_exec_api.wire.version import RELEASE

IMAGES = ("sandbox", "operator", "gateway", "broker", "servers")
"""Images that the chart uses without values."""
RELEASED = (*IMAGES, "sandbox-typescript")
SBOM = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": [{"name": "numpy"}]}
SBOM_PATH = "usr/share/mcp-exec/sbom.cdx.json"


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release in a registry."""

    registry: str
    """Its address with a path."""
    environment: Mapping[str, str]
    """With the tools, the key, and the names of docs/platform/releases.md."""
    folder: Path

    def run(self, *command: str | Path, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            list(map(str, command)), env={**self.environment, **environment}, cwd=ROOT, capture_output=True, text=True,
            timeout=2 * DEADLINE, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr
        return done

    def copy(self, archive: Path, name: str, registry: str = "") -> str:
        """Push an archive, and return its digest."""
        target = f"docker://{registry or self.registry}/mcp-exec-{name}:{RELEASE}"
        digest = self.folder / "digest"
        self.run(
            "skopeo", "--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests", "--dest-tls-verify=false",
            "--digestfile", digest, f"oci-archive:{archive}", target,
        )  # fmt: skip
        return digest.read_text()

    def sign(self, digest: str, archive: Path, name: str) -> None:
        python, reference = self.environment["PYTHON"], f"{self.registry}/mcp-exec-{name}@{digest}"
        self.run(python, "-m", "hack.artifacts.signing", reference, "--archive", archive, "--name", name)


def write_image(path: Path, *, packages: bool = True, platforms: tuple[str, ...] = ("amd64",)) -> Path:
    """Write the OCI archive of an image, whose first layer has the list of its packages."""
    blobs: dict[str, bytes] = {}

    def add(content: bytes, kind: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        blobs[f"blobs/{digest.replace(':', '/')}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": len(content)}

    def layer(files: Mapping[str, str]) -> bytes:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        return raw.getvalue()

    layers = [layer({SBOM_PATH: json.dumps(SBOM)} if packages else {}), layer({"etc/name": path.name})]
    manifests = []
    for platform in platforms:
        config = {
            "architecture": platform, "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]},
        }  # fmt: skip
        manifest = {
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": add(json.dumps(config).encode(), "config.v1+json"),
            "layers": [add(each, "layer.v1.tar") for each in layers],
        }  # fmt: skip
        descriptor = add(json.dumps(manifest).encode(), "manifest.v1+json")
        manifests.append({**descriptor, "platform": {"architecture": platform, "os": "linux"}})
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    top = add(json.dumps(index).encode(), "index.v1+json") if len(platforms) > 1 else manifests[0]
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [top]}).encode(),
        **blobs,
    }
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture(scope="session")
def tools() -> str:
    """The folder with the programs that the machine does not have."""
    command = [str(ROOT / "hack/tools"), "cosign", "skopeo", "docker-registry", "helm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * DEADLINE, check=False)
    if done.returncode:
        pytest.skip(f"hack/tools: {done.stderr.splitlines()[-1]}")
    return done.stdout.strip()


@pytest.fixture(scope="session")
def registry(tools: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an empty registry."""
    environment = {"PATH": f"{os.environ['PATH']}{os.pathsep}{tools}"}
    with running_registry(tmp_path_factory.mktemp("registry"), environment) as address:
        yield address


@pytest.fixture(scope="session")
def release(tools: str, registry: str, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release with signed charts and signed images, of which one is for two platforms."""
    folder = tmp_path_factory.mktemp("release")
    environment = {
        "PATH": f"{os.environ['PATH']}{os.pathsep}{tools}", "HOME": str(folder), "PYTHON": sys.executable,
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "VENV": sys.prefix, "COSIGN_PASSWORD": "secret",
        "COSIGN_KEY": str(folder / "cosign.key"), "MCP_EXEC_CACHE": str(Path(tools).parents[1]),
        "REGISTRY": f"{registry}/mcp-exec", "VERSION": RELEASE,
    }  # fmt: skip
    found = Release(registry=f"{registry}/mcp-exec", environment=environment, folder=folder)
    subprocess.run(["cosign", "generate-key-pair"], cwd=folder, env=environment, check=True, capture_output=True)
    digests = {}
    for name in RELEASED:
        platforms = ("amd64", "arm64") if name == "sandbox" else ("amd64",)
        digest = found.copy(write_image(folder / f"{name}.tar", platforms=platforms), name)
        found.sign(digest, folder / f"{name}.tar", name)
        digests[name] = digest
    for name in chart.NAMES:
        packaged = chart.package(folder, name, repository=found.registry, digests=digests)
        found.run(ROOT / "hack/push-chart", packaged, found.registry)
    return found
