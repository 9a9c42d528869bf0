"""The files of the image that CPython's tests run in."""

import json
import subprocess
from pathlib import Path

import pytest
from hack.cpython.unpack import unpack


@pytest.mark.parametrize("form", ["docker", "oci"])
def test_the_layers_of_an_image_are_unpacked_over_each_other(tmp_path: Path, form: str) -> None:
    layers = ({"a": "old", "b": "gone"}, {"a": "new", ".wh.b": ""})
    content = tmp_path / "content"
    blobs = content / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for number, files in enumerate(layers):
        source = tmp_path / f"layer{number}"
        source.mkdir()
        for name, text in files.items():
            (source / name).write_text(text)
        subprocess.run(["tar", "-C", source, "-cf", blobs / f"{number}", "."], check=True)
    if form == "docker":
        (content / "manifest.json").write_text(json.dumps([{"Layers": ["blobs/sha256/0", "blobs/sha256/1"]}]))
    else:
        (blobs / "m").write_text(json.dumps({"layers": [{"digest": "sha256:0"}, {"digest": "sha256:1"}]}))
        (content / "index.json").write_text(json.dumps({"manifests": [{"digest": "sha256:m"}]}))
    subprocess.run(["tar", "-C", content, "-cf", tmp_path / "image.tar", "."], check=True)
    unpack(tmp_path / "image.tar", tmp_path / "root")
    assert {file.name: file.read_text() for file in (tmp_path / "root").iterdir()} == {"a": "new"}
