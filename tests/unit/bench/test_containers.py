"""The root file system that bench/containers.py unpacks from an image's archive."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from containers import unpack_image

LAYERS = {"one": {"etc/kept": "kept", "etc/replaced": "old"}, "two": {"etc/replaced": "new"}}
OCI = {
    "index.json": json.dumps({"manifests": [{"digest": "sha256:m"}]}),
    "blobs/sha256/m": json.dumps({"layers": [{"digest": "sha256:one"}, {"digest": "sha256:two"}]}),
}
DOCKER = {"manifest.json": json.dumps([{"Layers": ["blobs/sha256/one", "blobs/sha256/two"]}])}


def archive(files: dict[str, bytes]) -> bytes:
    """Return a tar of files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


@pytest.mark.parametrize("described", [OCI, DOCKER, OCI | DOCKER], ids=["OCI", "docker", "both"])
def test_a_later_layer_replaces_files_of_an_earlier_one(described: dict[str, str], tmp_path: Path) -> None:
    layers = {name: archive({path: text.encode() for path, text in each.items()}) for name, each in LAYERS.items()}
    files = {name: text.encode() for name, text in described.items()}
    image, folder = tmp_path / "image.tar", tmp_path / "rootfs"
    image.write_bytes(archive(files | {f"blobs/sha256/{name}": layer for name, layer in layers.items()}))
    unpacked = unpack_image(image, folder)
    assert {path.name: path.read_text() for path in (unpacked / "etc").iterdir()} == {"kept": "kept", "replaced": "new"}
