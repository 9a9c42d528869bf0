"""Fetch a command-line tool of locks/tools.txt from where its project publishes it.

    python3 hack/fetch.py install NAME FOLDER SYSTEM MACHINE    put it into FOLDER, if its checksum is the locked one
    python3 hack/fetch.py pin NAME VERSION                      lock another version by the checksums of its project

SYSTEM and MACHINE are in uname's words. Environment: MCP_EXEC_KIND_URL, MCP_EXEC_KUBECTL_URL, MCP_EXEC_HELM_URL and
MCP_EXEC_GVISOR_URL name mirrors with the projects' paths; MCP_EXEC_FETCH_TIMEOUT is the time without data until a
server counts as stalled (default 10 seconds). Proxies come from the usual variables. Standard library only, for Python
3.8 and later.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import re
import shutil
import sys
import tarfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

LOCK = Path(__file__).resolve().parents[1] / "locks/tools.txt"
PLATFORMS = (("darwin", "amd64"), ("darwin", "arm64"), ("linux", "amd64"), ("linux", "arm64"))
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
ATTEMPTS = 3
LIMIT_BYTES = 256 << 20  # kubectl, the largest, has 60 MB
LIMIT_SECONDS = 600.0


class FetchFailed(Exception):
    """The tool can't be fetched. The message is a clause without a full stop."""


class EndedEarly(FetchFailed):
    """The server answered and then failed, so that another attempt may succeed."""


@dataclass(frozen=True)
class Source:
    """Where a project publishes a tool.

    `checksum` is the suffix of the file with its checksum. `member` is the tool's name in an archive, `*` for all files
    of it, empty if it is no archive.
    """

    base: str
    path: str
    checksum: str
    member: str = ""
    platforms: tuple[tuple[str, str], ...] = PLATFORMS


SOURCES = {
    "kind": Source("https://kind.sigs.k8s.io/dl", "{version}/kind-{system}-{machine}", ".sha256sum"),
    "kubectl": Source("https://dl.k8s.io", "release/{version}/bin/{system}/{machine}/kubectl", ".sha256"),
    "helm": Source(
        "https://get.helm.sh", "helm-{version}-{system}-{machine}.tar.gz", ".sha256sum", "{system}-{machine}/helm"
    ),
    # runsc runs programs of the folder gvisor-bin next to it.
    "gvisor": Source(
        "https://storage.googleapis.com/gvisor/releases/release",
        "{version}/{uname}/gvisor.tar.bz2",
        ".sha512",
        "*",
        (("linux", "amd64"), ("linux", "arm64")),
    ),
}
ALGORITHMS = {64: "sha256", 128: "sha512"}
"""By the digits of a checksum."""


def read_lock() -> dict[tuple[str, str, str], tuple[str, str]]:
    """Return version and checksum of each locked tool by name, system and architecture."""
    lines = [line.split() for line in LOCK.read_text().splitlines() if line and line[0] != "#"]
    return {(name, system, machine): (version, checksum) for name, version, system, machine, checksum in lines}


def locate(name: str, version: str, system: str, machine: str) -> str:
    """Return the URL of a tool, at its project or at the mirror that the environment names."""
    source = SOURCES[name]
    base = os.environ.get(f"MCP_EXEC_{name.upper()}_URL") or source.base
    uname = {known: word for word, known in MACHINES.items()}.get(machine, machine)
    return f"{base.rstrip('/')}/{source.path.format(version=version, system=system, machine=machine, uname=uname)}"


def download(url: str) -> bytes:
    """Return what a URL serves. Attempts that end early are repeated; an unreachable server is not asked again."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return download_once(url)
        except EndedEarly:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError


def download_once(url: str) -> bytes:
    """Return what a URL serves, within the limits of bytes and seconds."""
    timeout = float(os.environ.get("MCP_EXEC_FETCH_TIMEOUT") or 10)
    until = time.monotonic() + LIMIT_SECONDS
    parts: list[bytes] = []
    size = 0
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            expected = response.headers.get("Content-Length")
            while part := response.read(1 << 20):
                parts.append(part)
                size += len(part)
                if max(size, int(expected or 0)) > LIMIT_BYTES:
                    raise FetchFailed(f"{url} serves more than {LIMIT_BYTES >> 20} MiB")
                if time.monotonic() > until:
                    raise FetchFailed(f"{url} takes more than {LIMIT_SECONDS:.0f} seconds")
    except urllib.error.HTTPError as error:
        kind = EndedEarly if error.code >= 500 else FetchFailed
        raise kind(f"{url} returned {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise FetchFailed(f"{url} is not reachable ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        if "timed out" in str(error):
            raise FetchFailed(f"{url} sends nothing for {timeout:g} seconds") from error
        raise EndedEarly(f"{url} ended early ({error or type(error).__name__})") from error
    if expected and size != int(expected):
        raise EndedEarly(f"{url} ended early ({size} of {expected} bytes)")
    return b"".join(parts)


def unpack(content: bytes, member: str) -> bytes:
    """Return a file of a compressed tar archive."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            file = archive.extractfile(member)
            if file is None:
                raise KeyError(member)
            return file.read()
    except (KeyError, tarfile.TarError, OSError, EOFError) as error:
        raise FetchFailed(f"the archive has no file {member}") from error


def unpack_all(content: bytes, folder: Path) -> None:
    """Write the files of a compressed tar archive into a new folder."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts:
                    raise FetchFailed(f"the archive has a file outside of its folder: {path}")
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None:
                    (folder / path.parent).mkdir(parents=True, exist_ok=True)
                    (folder / path).write_bytes(file.read())
                    (folder / path).chmod(0o755)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise FetchFailed(f"the archive can't be unpacked ({error})") from error


def check(content: bytes, url: str, checksum: str) -> None:
    """Compare what a URL served with the locked checksum."""
    algorithm = ALGORITHMS[len(checksum)]
    if hashlib.new(algorithm, content).hexdigest() != checksum:
        name = f"{algorithm[:3].upper()}-{algorithm[3:]}"
        raise FetchFailed(f"{url} serves another file than the locked one: its {name} differs from locks/tools.txt")


def install(name: str, folder: str, system: str, machine: str) -> None:
    """Put a tool into a folder, complete or not at all. All files of an archive become the folder."""
    system, machine = system.lower(), MACHINES.get(machine, machine)
    found = read_lock().get((name, system, machine))
    if not found:
        raise FetchFailed(f"locks/tools.txt has no {name} for {system} on {machine}")
    version, checksum = found
    url = locate(name, version, system, machine)
    content = download(url)
    check(content, url, checksum)
    member = SOURCES[name].member.format(system=system, machine=machine)
    target = Path(folder) if member == "*" else Path(folder) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    if member == "*":
        try:
            unpack_all(content, part)
            shutil.rmtree(target, ignore_errors=True)
            part.replace(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    else:
        part.write_bytes(unpack(content, member) if member else content)
        part.chmod(0o755)
        part.replace(target)


def pin(name: str, version: str) -> None:
    """Replace a tool's lines of the lock by those of a version."""
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith(f"{name} ")]
    for system, machine in SOURCES[name].platforms:
        url = locate(name, version, system, machine) + SOURCES[name].checksum
        found = re.match(r"([0-9a-f]{128}|[0-9a-f]{64})\b", download(url).decode(errors="replace"))
        if not found:
            raise FetchFailed(f"{url} serves no checksum")
        lines.append(f"{name} {version} {system} {machine} {found[0]}")
    comments = [line for line in lines if line.startswith("#")]
    LOCK.write_text("\n".join([*comments, *sorted(set(lines) - set(comments))]) + "\n")


def main() -> None:
    """Run a command, and print the reason if it fails."""
    command, *arguments = sys.argv[1:] or [""]
    try:
        if (command, len(arguments)) == ("install", 4) and arguments[0] in SOURCES:
            install(*arguments)
        elif (command, len(arguments)) == ("pin", 2) and arguments[0] in SOURCES:
            pin(*arguments)
        else:
            names = "|".join(SOURCES)
            sys.exit(f"usage: fetch.py install {names} FOLDER SYSTEM MACHINE | pin {names} VERSION")
    except FetchFailed as failed:
        sys.exit(str(failed))


if __name__ == "__main__":
    main()
