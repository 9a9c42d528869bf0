"""Unpack the files of an image: python -m hack.cpython.unpack ARCHIVE FOLDER. Archives of docker and buildah."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_HIDDEN = ".wh."
"""Prefix of the files of a layer that remove those of earlier ones."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the layers, one over the other."""
    folder.mkdir(parents=True)
    with TemporaryDirectory(dir=folder.parent) as content:
        subprocess.run(["tar", "-C", content, "-xf", archive], check=True)
        for layer in _list_layers(Path(content)):
            subprocess.run(["tar", "-C", folder, "-xf", layer, "--no-same-owner"], check=True)
            for hidden in list(folder.rglob(f"{_HIDDEN}*")):
                subprocess.run(["rm", "-rf", hidden, hidden.with_name(hidden.name.removeprefix(_HIDDEN))], check=True)


def _list_layers(content: Path) -> list[Path]:
    """Return the archives of the layers, by the manifest of docker or of OCI."""
    if (listed := content / "manifest.json").exists():
        return [content / layer for layer in json.loads(listed.read_bytes())[0]["Layers"]]
    manifest = json.loads((content / "index.json").read_bytes())["manifests"][0]["digest"]
    layers = json.loads(_find_blob(content, manifest).read_bytes())["layers"]
    return [_find_blob(content, layer["digest"]) for layer in layers]


def _find_blob(content: Path, digest: str) -> Path:
    return content / "blobs" / digest.replace(":", "/")


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
