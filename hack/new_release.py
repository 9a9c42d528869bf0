"""Make a release of this checkout: everything that needs no credentials.

python -m hack.new_release VERSION [--checks STAGES] [--build PARTS] [--registry REGISTRY]
python -m hack.new_release --built [--build PARTS] [--registry REGISTRY]

It runs the checks (`make STAGES`), sets the version, writes the generated files, collects changes/ into CHANGELOG.md,
commits and tags, and builds all artifacts into build/release/VERSION, with notes and checksums. With a registry, such
as 127.0.0.1:5000/mcp-exec, it pushes images and chart there, signed if COSIGN_KEY is set; nothing else leaves the
machine. Until the commit, a failure leaves the checkout as it was. --built only builds, in the checkout of a release.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.artifacts import chart, plugin
from hack.artifacts.places import read_places

from mcp_exec_api.wire import version as declared
from mcp_exec_api.wire.version import RELEASE

ROOT: Final = Path(__file__).parents[1]
_SOURCE: Final = "crds/mcp_exec_api/wire/version.py"
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-(?:alpha|beta|rc)\.([1-9]\d*))?")
"""A version of SemVer; wheels have no other pre-releases."""
_STAGES: Final = "lint types unit component e2e"
_IMAGES: Final = ("sandbox", "operator", "gateway", "broker", "servers", "sandbox-typescript")


class ReleaseError(Exception):
    """Why there is no release."""


@dataclass(frozen=True, kw_only=True)
class NewRelease:
    """One release, made step by step."""

    version: str
    folder: Path
    """Where its artifacts go."""
    registry: str = ""
    """Where images and chart are pushed. Empty: nowhere."""

    @property
    def tag(self) -> str:
        """Its tag in git."""
        return f"v{self.version}"

    def check_state(self) -> None:
        """Raise ReleaseError if the version or the checkout is not fit for a release."""
        if (source := Path(declared.__file__)) != ROOT / _SOURCE:
            raise ReleaseError(f"the virtual environment is that of another checkout, {source}: run `make venv` here")
        if not _VERSION.fullmatch(self.version):
            raise ReleaseError(f"{self.version!r} is no version; allowed: 1.2.3, 1.2.3-alpha.1, -beta.1 and -rc.1")
        if order(self.version) <= order(RELEASE):
            raise ReleaseError(f"{self.version} is not later than {RELEASE}, the version of {_SOURCE}")
        if read("git", "status", "--porcelain"):
            raise ReleaseError("there are changes that are not committed: commit or remove them first")
        if read("git", "tag", "--list", self.tag):
            raise ReleaseError(f"there is a tag {self.tag}")
        if not any(ROOT.glob("changes/*.*.md")):
            raise ReleaseError("changes/ has no fragment: CONTRIBUTING.md says how one is written")

    def check_tag(self) -> None:
        """Raise ReleaseError if this is not the checkout of the release."""
        if self.version != RELEASE or self.tag not in read("git", "tag", "--points-at", "HEAD").split():
            raise ReleaseError(f"this checkout is not that of the tag {self.tag}")
        if read("git", "status", "--porcelain"):
            raise ReleaseError("there are changes that are not committed: commit or remove them first")

    def write(self) -> None:
        """Set the version in all files, and collect the changes. Restores the checkout if that fails."""
        try:
            source = ROOT / _SOURCE
            source.write_text(source.read_text().replace(f'RELEASE = "{RELEASE}"', f'RELEASE = "{self.version}"'))
            run("make", "--no-print-directory", "--old-file=venv", "generate")
            run("towncrier", "build", "--yes", "--version", self.version)
            values = ROOT / f"tests/data/values/{self.version}.yaml"
            values.parent.mkdir(exist_ok=True)
            shutil.copyfile(ROOT / "charts/mcp-exec/values.yaml", values)
            run(sys.executable, "-m", "tests.component.sandbox.protocol", f"tests/data/protocol/{self.version}.json")
            with (ROOT / "hack/releases.txt").open("a") as releases:
                releases.write(f"{self.tag}\n")
            run("git", "add", "--all")
            run("git", "commit", "--quiet", "--message", f"Release {self.version}")
        except (ReleaseError, KeyboardInterrupt):
            run("git", "reset", "--quiet", "--hard")
            run("git", "clean", "--quiet", "--force", "changes", "tests/data/values", "tests/data/protocol")
            raise
        run("git", "tag", "--annotate", self.tag, "--message", f"mcp-exec {self.version}")

    def build(self, parts: Sequence[str]) -> None:
        """Build the parts, and write their notes and checksums."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for part in parts:
            BUILDERS[part](self)
        (self.folder / "NOTES.md").write_text(find_notes((ROOT / "CHANGELOG.md").read_text(), self.version))
        files = sorted(path for path in self.folder.iterdir() if path.name != "SHA256SUMS")
        sums = [f"{hash_file(path)}  {path.name}\n" for path in files]
        (self.folder / "SHA256SUMS").write_text("".join(sums))

    def build_wheels(self) -> None:
        """Build both wheels."""
        run("hack/wheels", str(self.folder))

    def build_chart(self) -> None:
        """Package the charts, and write what the whole one renders: manifests, and the list of images.

        All have the digests of the images that were pushed. Raises ReleaseError if one that the registry should have
        was not.
        """
        repository = read_places(self.registry).images
        digests = self.find_digests(repository)
        if self.registry and (missing := [name for name in _IMAGES if name not in digests]):
            raise ReleaseError(
                f"no digest of {repository}/mcp-exec-{missing[0]}:{self.version} is known: build the part images, too"
            )
        packaged, cluster = (
            chart.package(self.folder, name, repository=repository, digests=digests) for name in chart.NAMES
        )
        objects = chart.render(packaged)
        chart.write_manifests(self.folder, objects, version=self.version)
        versions = {item["metadata"].get("labels", {}).get("app.kubernetes.io/version") for item in objects}
        if versions - {None} != {self.version}:
            raise ReleaseError(f"the chart is not of the version {self.version}: {packaged.name}")
        images = chart.list_images(chart.render(packaged, chart.ALL_POOLS), repository=repository)
        (self.folder / "images.txt").write_text("".join(f"{image}\n" for image in images))
        for path in (packaged, cluster) if self.registry else ():
            run("hack/push-chart", str(path), self.registry)

    def find_digests(self, repository: str) -> dict[str, str]:
        """Return the digests of the release's images that were pushed to a repository, by their names."""
        pushed = ROOT / ".cache" / "pushed-images"
        lines = dict(line.split("@") for line in pushed.read_text().split()) if pushed.exists() else {}
        images = {name: f"{repository}/mcp-exec-{name}:{self.version}" for name in _IMAGES}
        return {name: lines[image] for name, image in images.items() if image in lines}

    def build_plugin(self) -> None:
        """Build kubectl's plugin for each platform, and its manifest if the address of downloads is known."""
        run("hack/wheels", str(self.folder))
        (wheel,) = self.folder.glob("mcp_exec_client-*.whl")
        built = [plugin.build_archive(self.folder, wheel, each, version=self.version) for each in plugin.PLATFORMS]
        places = read_places()
        if places.downloads:
            manifest = plugin.build_manifest(
                places, {path.name: hash_file(path) for path in built}, version=self.version
            )
            (self.folder / "krew-mcp-exec.yaml").write_text(manifest)
        else:
            print("RELEASE_DOWNLOADS of hack/places.env is empty, so there is no manifest for krew")

    def build_npm(self) -> None:
        """Build the npm package of the TypeScript client."""
        run("hack/typescript-client", "pack", str(self.folder))

    def build_images(self) -> None:
        """Build the images, as archives, and push them if there is a registry."""
        if self.registry:
            run("hack/push", environment={"TAG": self.version, "IMAGE_REPOSITORY": self.registry})
        else:
            run("hack/images", environment={"TAG": self.version, "LANGUAGE": "typescript"})
        for name in _IMAGES:
            shutil.copyfile(ROOT / ".cache" / "images" / f"{name}.tar", self.folder / f"mcp-exec-{name}.tar")


BUILDERS: Final[Mapping[str, Callable[[NewRelease], None]]] = {
    "wheels": NewRelease.build_wheels,
    "plugin": NewRelease.build_plugin,
    "npm": NewRelease.build_npm,
    "images": NewRelease.build_images,
    "chart": NewRelease.build_chart,  # after the images, whose digests it lists
}


def order(version: str) -> tuple[int, ...]:
    """Return what versions are compared by: a pre-release comes before its version."""
    match = _VERSION.fullmatch(version)
    assert match is not None
    kinds = {"alpha": 0, "beta": 1, "rc": 2}
    kind = next((kinds[name] for name in kinds if f"-{name}." in version), len(kinds))
    return (*map(int, match.groups()[:3]), kind, int(match[4] or 0))


def find_notes(changelog: str, version: str) -> str:
    """Return the part of CHANGELOG.md about a version. Raises ReleaseError if there is none."""
    match = re.search(rf"(?ms)^## {re.escape(version)} .*?(?=^## |\Z)", changelog)
    if match is None:
        raise ReleaseError(f"CHANGELOG.md has no section of {version}")
    return match[0].rstrip() + "\n"


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run(*command: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a command in the checkout. Raises ReleaseError if it fails."""
    if subprocess.run(command, cwd=ROOT, env={**os.environ, **(environment or {})}, check=False).returncode:
        raise ReleaseError(f"`{' '.join(command)}` failed; its messages are above")


def read(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Make the release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?", default=RELEASE)
    parser.add_argument("--checks", default=_STAGES, help=f"targets of the Makefile; default: {_STAGES}")
    parser.add_argument("--build", default=" ".join(BUILDERS), help=f"what to build; default: {' '.join(BUILDERS)}")
    parser.add_argument("--registry", default="", help="where to push images and chart; default: nowhere")
    parser.add_argument("--built", action="store_true", help="build a release that is tagged, and change nothing")
    options = parser.parse_args()
    if unknown := [part for part in options.build.split() if part not in BUILDERS]:
        parser.error(f"--build: {unknown[0]!r} is not one of {', '.join(BUILDERS)}")
    parts = [part for part in BUILDERS if part in options.build.split()]
    folder = ROOT / "build" / "release" / options.version
    release = NewRelease(version=options.version, folder=folder, registry=options.registry)
    try:
        if options.built:
            release.check_tag()
        else:
            release.check_state()
            if options.checks:
                run("hack/stages", *options.checks.split())
            release.write()
        release.build(parts)
    except ReleaseError as error:
        sys.exit(f"no release: {error}")
    print(f"{release.folder.relative_to(ROOT)} has the artifacts. Next: git push --follow-tags")


if __name__ == "__main__":
    main()
