"""kubectl's plugin `mcp-exec` for krew: an archive for each platform, and the manifest.

An archive has the client, its dependencies from locks/dev.txt for each supported Python, and a script that starts them.
The user's machine needs Python: the plugin needs compiled packages, and a zipapp can't import those.
"""

import gzip
import io
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml
from hack.artifacts.places import ROOT, Places
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
NAME: Final = "kubectl-mcp_exec"
_LAUNCHER: Final = """\
#!/bin/sh
# Starts the plugin with the first Python of {first} to {last} on PATH; $MCP_EXEC_PYTHON names another.
link=$0
while [ -L "$link" ]; do
  target=$(readlink "$link")
  case $target in /*) link=$target ;; *) link=${{link%/*}}/$target ;; esac
done
folder=$(CDPATH= cd -- "${{link%/*}}" && pwd)
for python in ${{MCP_EXEC_PYTHON:-python3 {commands}}}; do
  "$python" -I -c 'import sys; sys.exit(not {oldest} <= sys.version_info[:2] <= {newest})' 2>/dev/null || continue
  PYTHONPATH=$folder/lib exec "$python" -P -c 'from mcp_exec_client.cli.start import kubectl_main; kubectl_main()' "$@"
done
echo "{name}: needs Python {first} to {last} on PATH; \\$MCP_EXEC_PYTHON can name it" >&2
exit 1
"""


@dataclass(frozen=True, kw_only=True)
class Platform:
    """A platform of krew, and the tags of the wheels that run on it."""

    system: str
    machine: str
    tags: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name in the archive's."""
        return f"{self.system}-{self.machine}"


def _linux(machine: str, word: str) -> Platform:
    versions = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
    return Platform(system="linux", machine=machine, tags=tuple(f"{version}_{word}" for version in versions))


def _mac(machine: str, word: str) -> Platform:
    oldest = 11 if word == "arm64" else 10
    versions = ("11_0", "10_15", "10_13", "10_12", "10_9")
    return Platform(
        system="darwin",
        machine=machine,
        tags=tuple(f"macosx_{version}_{word}" for version in versions if int(version.split("_")[0]) >= oldest),
    )


PLATFORMS: Final = (
    _linux("amd64", "x86_64"),
    _linux("arm64", "aarch64"),
    _mac("amd64", "x86_64"),
    _mac("arm64", "arm64"),
)


def find_requirements() -> str:
    """Return the lines of locks/dev.txt for the extra `kubectl`, with their hashes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "locks" / "dev.txt").read_text()
    entries = {canonicalize_name(entry.partition("==")[0]): entry for entry in re.split(r"\n(?=\S)", lock.strip())}
    found: dict[str, str] = {}
    waiting = [*project["dependencies"], f"{project['name']}[kubectl]"]
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name == project["name"]:
            for extra in requirement.extras:
                waiting += project["optional-dependencies"][extra]
        elif name in entries and name not in found:
            found[name] = entries[name]
            waiting += _list_requirements(name)
    return "\n".join(found[name] for name in sorted(found)) + "\n"


def _list_requirements(name: str) -> Iterator[str]:
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # of another platform or Python
        return
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or "extra" not in str(requirement.marker):
            yield f"{requirement.name}"


def build_archive(
    folder: Path, wheel: Path, platform: Platform, *, version: str, pythons: tuple[str, ...] = PYTHONS
) -> Path:
    """Build the archive of a platform from the client's wheel; the dependencies come from pip's index."""
    with TemporaryDirectory() as work:
        lib = Path(work) / "lib"
        requirements = Path(work) / "requirements.txt"
        requirements.write_text(find_requirements())
        for python in pythons:
            _install(lib, platform, python, "--require-hashes", "--requirement", str(requirements))
        _install(lib, platform, pythons[0], str(wheel))
        path = folder / f"{NAME}-{version}-{platform.name}.tar.gz"
        write_archive(path, lib, pythons)
    return path


def _install(lib: Path, platform: Platform, python: str, *what: str) -> None:
    target = lib.with_name(f"lib-{python}")
    options = ["-qq", "--disable-pip-version-check", "--no-compile", "--no-deps", "--only-binary=:all:"]
    tags = [option for tag in platform.tags for option in ("--platform", tag)]
    command = [sys.executable, "-m", "pip", "install", *options, *tags, "--python-version", python]
    subprocess.run([*command, "--implementation", "cp", "--target", str(target), "--upgrade", *what], check=True)
    # Compiled modules have their Python in their names; all other files are the same in each.
    for path in sorted(target.rglob("*")):
        name = lib / path.relative_to(target)
        if path.is_file() and not name.exists() and path.relative_to(target).parts[0] != "bin":
            name.parent.mkdir(parents=True, exist_ok=True)
            path.rename(name)


def write_archive(path: Path, lib: Path, pythons: tuple[str, ...]) -> None:
    """Write an archive whose bytes depend on its content only."""
    first, last = pythons[0], pythons[-1]
    tuples = [f"({version.replace('.', ', ')})" for version in (first, last)]
    commands = " ".join(f"python{version}" for version in reversed(pythons))
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        _add(archive, "LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644)
        launcher = _LAUNCHER.format(
            name=NAME, first=first, last=last, commands=commands, oldest=tuples[0], newest=tuples[1]
        )
        _add(archive, NAME, launcher.encode(), 0o755)
        for found in sorted(lib.rglob("*")):
            if found.is_file():
                _add(archive, f"lib/{found.relative_to(lib)}", found.read_bytes(), 0o644)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def build_manifest(places: Places, sums: Mapping[str, str], *, version: str) -> str:
    """Return the manifest of archives, by their names and SHA-256. The places must have downloads."""
    platforms: list[dict[str, Any]] = [
        {
            "selector": {"matchLabels": {"os": platform.system, "arch": platform.machine}},
            "uri": f"{places.downloads}/v{version}/{name}",
            "sha256": sums[name],
            "bin": NAME,
        }
        for platform in PLATFORMS
        for name in [f"{NAME}-{version}-{platform.name}.tar.gz"]
        if name in sums
    ]
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "mcp-exec"},
        "spec": {
            "version": f"v{version}",
            **({"homepage": places.source} if places.source else {}),
            "shortDescription": "Run code in sandboxes and follow executions",
            "description": "Runs code in sandboxes of mcp-exec; shows executions, pools, sessions and rollouts.\n",
            "caveats": f"The plugin needs Python {PYTHONS[0]} to {PYTHONS[-1]} on PATH.\n",
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(manifest, sort_keys=False, width=120)
