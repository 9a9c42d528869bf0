"""Sign what a registry has, and attest an image's packages and its build, by cosign with a key.

python -m hack.artifacts.signing REFERENCE@DIGEST [--archive FILE --name NAME]

COSIGN_KEY is the key: a file, or the address of a key in a KMS as cosign takes it; `keyless` is the identity of a CI
job. COSIGN_PASSWORD is the password of a file. With --archive, the file of hack/images that the reference was pushed
from, the image gets two attestations: its CycloneDX list of packages, and a provenance of SLSA 1.0 by RELEASE_BUILDER.
With a key, nothing goes to a transparency log: `cosign verify` needs `--insecure-ignore-tlog` and the public key.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hack.artifacts.places import ROOT, read_places

_SBOM: Final = "usr/share/mcp-exec/sbom.cdx.json"
_BUILD_TYPE: Final = "urn:mcp-exec:hack-images:v1"
"""docs/platform/releases.md describes its parameters."""
_BUILDER: Final = "urn:mcp-exec:builder:checkout"
"""A machine of whoever has the key. CI sets RELEASE_BUILDER instead."""
_SECONDS: Final = 120
KEYLESS: Final = "keyless"


class SigningError(Exception):
    """Why something is not signed."""


def read_sbom(archive: Path) -> str:
    """Return the list of packages in the archive of an image, as docker or buildah writes it."""
    with tarfile.open(archive) as image:
        for name in _list_layers(image):
            blob = image.extractfile(name)
            assert blob is not None
            with tarfile.open(fileobj=blob, mode="r:*") as layer:
                for member in layer:
                    if member.name.removeprefix("./") == _SBOM:
                        content = layer.extractfile(member)
                        assert content is not None
                        return content.read().decode()
    raise SigningError(f"{archive} has no /{_SBOM}")


def _list_layers(image: tarfile.TarFile) -> Iterator[str]:
    """Return the names of the layers' files, the last layer first."""
    if "manifest.json" in image.getnames():  # docker's
        yield from reversed(_load(image, "manifest.json")[0]["Layers"])
        return
    manifest = _load(image, "index.json")
    while "manifests" in manifest:  # an index of platforms, whose packages are those of the first
        manifest = _load(image, _blob(manifest["manifests"][0]))
    yield from (_blob(layer) for layer in reversed(manifest["layers"]))


def _blob(descriptor: dict[str, Any]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def _load(image: tarfile.TarFile, name: str) -> Any:
    file = image.extractfile(name)
    assert file is not None
    return json.load(file)


def build_provenance(name: str) -> dict[str, Any]:
    """Return the predicate for an image of this checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    images = dict(
        line.split() for line in subprocess.run(
            [ROOT / "hack" / "images", "sources"], check=True, capture_output=True, text=True
        ).stdout.splitlines()
    )  # fmt: skip
    return {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": {"image": name},
            "internalParameters": {"sources": images[name], "clean": not git("status", "--porcelain")},
            "resolvedDependencies": [
                {
                    **({"uri": f"git+{source}"} if (source := read_places().source) else {"name": "checkout"}),
                    "digest": {"gitCommit": git("rev-parse", "HEAD")},
                }
            ],
        },
        "runDetails": {"builder": {"id": os.environ.get("RELEASE_BUILDER") or _BUILDER}},
    }


def sign(reference: str, *, key: str) -> None:
    """Sign a reference by digest."""
    _cosign("sign", *_identify(key), reference)


def attest(reference: str, kind: str, predicate: str, *, key: str) -> None:
    """Attach a signed predicate of a kind that cosign names."""
    with TemporaryDirectory() as work:
        file = Path(work) / "predicate.json"
        file.write_text(predicate)
        _cosign("attest", *_identify(key), "--replace", "--type", kind, "--predicate", str(file), reference)


def _identify(key: str) -> tuple[str, ...]:
    return ("--yes",) if key == KEYLESS else ("--yes", "--key", key, "--tlog-upload=false")


def _cosign(*arguments: str) -> None:
    try:
        done = subprocess.run(["cosign", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError as error:
        raise SigningError("there is no cosign on PATH: `hack/tools cosign` gets it on Debian") from error
    except subprocess.TimeoutExpired as error:
        raise SigningError(f"cosign {arguments[0]} takes more than {_SECONDS} seconds") from error
    if done.returncode:
        raise SigningError(f"cosign {arguments[0]} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")


def main() -> None:
    """Sign, and attest if there is an archive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference")
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--name")
    options = parser.parse_args()
    key = os.environ.get("COSIGN_KEY")
    if not key:
        parser.error("COSIGN_KEY is not set")
    if "@sha256:" not in options.reference:
        parser.error(f"{options.reference}: add @sha256:... because a tag can move")
    try:
        sign(options.reference, key=key)
        if options.archive:
            attest(options.reference, "cyclonedx", read_sbom(options.archive), key=key)
            attest(options.reference, "slsaprovenance1", json.dumps(build_provenance(options.name)), key=key)
    except SigningError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
