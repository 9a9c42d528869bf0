"""Processor seconds of only a sandbox's container: start, end and reuse, by runsc or runc, without Kubernetes.

It counts a control group of its own, so that other work on the machine hardly changes the figures. It needs root and
version 1 of cpuacct. A root file system is a folder, or is unpacked from an image's archive of docker or buildah.
A use is `print(1)` and the cleaning after it, in a sandbox with the network of the machine, on loopback.

    python bench/containers.py --rootfs now=FOLDER before=FOLDER --runtimes runsc runc --json containers.json
"""

import argparse
import hashlib
import http.client
import json
import os
import select
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness import parser, table, write_json

GROUP = Path("/sys/fs/cgroup/cpuacct/bench-containers")
UID = 100_123
END_SECONDS = 1.0
"""Time between SIGTERM and SIGKILL, as for a pool's pods."""
LIMIT_SECONDS = 30.0
"""Time for a container to print its first line, and to end after SIGKILL."""
SLEEP_SECONDS = 1.0
"""Time for a container that sleeps to start."""
ENVIRONMENT = ("PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONPATH=/opt/mcp-exec", "PYTHONUNBUFFERED=1", "HOME=/workspace")
TOKEN = "bench"
SETTINGS = (
    "PYTHONDONTWRITEBYTECODE=1",
    "LANG=C.UTF-8",
    f"MCP_EXEC_TOKEN_SHA256={hashlib.sha256(TOKEN.encode()).hexdigest()}",
)
LOOPBACK = ("MCP_EXEC_HOST=127.0.0.1", "MCP_EXEC_PORT=0")
FIRST_USES = 5
"""Uses that are not counted."""
SLEEP = ["sleep", "infinity"]
SANDBOX = ["python3", "-P", "/opt/mcp-exec/mcp_exec_sandbox/__main__.py"]


def read_seconds() -> float:
    """Return the processor seconds that the containers have used so far."""
    return int((GROUP / "cpuacct.usage").read_text()) / 1e9


def unpack_image(archive: Path, folder: Path) -> Path:
    """Unpack the layers of an image's archive, of docker or OCI, and return the folder of its root file system."""
    with tarfile.open(archive) as image:

        def read(name: str) -> Any:
            member = image.extractfile(name)
            assert member is not None
            return json.load(member)

        if "manifest.json" in image.getnames():
            layers = read("manifest.json")[0]["Layers"]
        else:
            digests = [read("index.json")["manifests"][0]["digest"]]
            digests = [layer["digest"] for layer in read(f"blobs/{digests[0].replace(':', '/')}")["layers"]]
            layers = [f"blobs/{digest.replace(':', '/')}" for digest in digests]
        for name in layers:
            with tarfile.open(fileobj=image.extractfile(name)) as layer:
                # Debian 12's Python 3.11.2 has no filters.
                layer.extractall(folder, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
    return folder


@dataclass(kw_only=True)
class Container:
    """A container that runs, and the first line that it has printed."""

    started: float
    """Processor seconds of its start."""
    line: bytes
    ended: float = 0.0
    """Processor seconds until its end, since the figure that `read_seconds` returned last inside the context."""


def build_config(
    rootfs: Path, command: list[str], folder: Path, *, has_network: bool, environment: tuple[str, ...]
) -> dict[str, Any]:
    """Return the OCI configuration of a container with a read-only root and two writable folders."""
    writable = [{"destination": f"/{name}", "type": "bind", "source": str(folder / name), "options": ["rbind", "rw"]}
                for name in ("workspace", "tmp")]  # fmt: skip
    shared = {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "mode=1777"]}
    kinds = ("pid", "mount", "ipc", "uts", *(() if has_network else ("network",)))
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": UID, "gid": UID},
            "args": command,
            "env": [*ENVIRONMENT, *SETTINGS, *environment],
            "cwd": "/workspace",
            "noNewPrivileges": True,
        },
        "root": {"path": str(rootfs.resolve()), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            shared,
            *writable,
        ],
        "linux": {"namespaces": [{"type": kind} for kind in kinds]},
    }


def read_line(stream: IO[bytes]) -> bytes:
    """Return the first line of a container's output, or nothing if there is none within the limit."""
    ready, _, _ = select.select([stream], [], [], LIMIT_SECONDS)
    return stream.readline() if ready else b""


@contextmanager
def run_container(
    runtime: str, rootfs: Path, command: list[str], *, has_network: bool = False, environment: tuple[str, ...] = ()
) -> Iterator[Container]:
    """Run a container until it is ready, and end it."""
    with tempfile.TemporaryDirectory(prefix="bench-containers-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for each in ("workspace", "tmp"):
            (folder / each).mkdir()
            os.chown(folder / each, UID, UID)
        config = build_config(rootfs, command, folder, has_network=has_network, environment=environment)
        (folder / "config.json").write_text(json.dumps(config))
        options = ["--ignore-cgroups", "--platform", "systrap"] if Path(runtime).name == "runsc" else []
        options += ["--network", "host"] if has_network and options else []
        base, label = [runtime, "--root", str(folder / "state"), *options], folder.name
        before = read_seconds()
        process = subprocess.Popen(
            ["sh", "-c", f'echo $$ > {GROUP}/cgroup.procs; exec "$@"', "sh", *base, "run", "--bundle", name, label],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        line = b""
        if command is SLEEP:
            time.sleep(SLEEP_SECONDS)
        elif b'"ready"' not in (line := read_line(process.stdout)):
            process.kill()
            said = line.decode(errors="replace")
            raise SystemExit(f"{rootfs}: the sandbox did not start within {LIMIT_SECONDS:g} s: {said}")
        container = Container(started=read_seconds() - before, line=line)
        try:
            yield container
        finally:
            before = read_seconds()
            subprocess.run([*base, "kill", label, "TERM"], check=False, capture_output=True, timeout=LIMIT_SECONDS)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                subprocess.run([*base, "kill", label, "KILL"], check=False, capture_output=True, timeout=LIMIT_SECONDS)
                process.wait(LIMIT_SECONDS)
            process.stdout.close()
            container.ended = read_seconds() - before


def measure(runtime: str, rootfs: Path, command: list[str]) -> tuple[float, float]:
    """Run a container until it is ready, end it, and return the processor seconds of both."""
    with run_container(runtime, rootfs, command) as container:
        pass
    return container.started, container.ended


def measure_uses(runtime: str, rootfs: Path, *, uses: int) -> tuple[float, float]:
    """Return the processor seconds and the milliseconds of cleaning for one use of a sandbox, on average."""
    with run_container(runtime, rootfs, SANDBOX, has_network=True, environment=LOOPBACK) as container:
        connection = http.client.HTTPConnection("127.0.0.1", json.loads(container.line)["port"], timeout=60)
        for number in range(FIRST_USES):
            use(connection, f"first-{number}")
        before = read_seconds()
        cleaned = [use(connection, f"use-{number}") for number in range(uses)]
        used = read_seconds() - before
        connection.close()
    return used / uses, statistics.median(cleaned)


def use(connection: http.client.HTTPConnection, name: str) -> float:
    """Let a sandbox run code for an owner, and clean it. Return the milliseconds of the cleaning."""
    job = {"id": name, "code": "print(1)", "timeoutSeconds": 30, "outputBytes": 65536, "owner": "0" * 32}
    ended = post(connection, "/v1/execution", job)
    if b'"phase":"Succeeded"' not in ended.replace(b" ", b""):
        raise SystemExit(f"an execution failed: {ended.decode(errors='replace')}")
    milliseconds: float = json.loads(post(connection, "/v1/recycle", {"id": name}))["cleanMs"]
    return milliseconds


def post(connection: http.client.HTTPConnection, path: str, body: dict[str, Any]) -> bytes:
    """Send a request, and return the body of the response."""
    connection.request("POST", path, json.dumps(body), {"authorization": f"Bearer {TOKEN}"})
    response = connection.getresponse()
    content = response.read()
    if response.status != http.HTTPStatus.OK:
        raise SystemExit(f"{path}: {response.status}: {content.decode(errors='replace')}")
    return content


def main() -> None:
    """Run the command."""
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="bench-image-") as made:
        Path(made).chmod(0o755)
        if arguments.image:
            folders = {"now": unpack_image(arguments.image, Path(made))}
        else:
            folders = {name: Path(folder) for name, _, folder in (each.partition("=") for each in arguments.rootfs)}
        compare(folders, arguments)


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    found = parser(__doc__)
    what = found.add_mutually_exclusive_group(required=True)
    what.add_argument("--rootfs", nargs="+", metavar="NAME=FOLDER", help="root file systems to compare")
    what.add_argument(
        "--image", type=Path, metavar="FILE", help="archive of an image, such as .cache/images/sandbox.tar"
    )
    found.add_argument("--runtimes", nargs="+", default=["runsc", "runc"], help="programs of the runtimes")
    found.add_argument("--rounds", type=int, default=9, help="containers of each kind, in turn")
    found.add_argument("--uses", type=int, default=40, metavar="N", help="uses of each sandbox that is reused")
    return found.parse_args()


def compare(folders: dict[str, Path], arguments: argparse.Namespace) -> None:
    """Measure all root file systems, print a table and write the figures."""
    kinds = {"sleeps": (next(iter(folders.values())), SLEEP)} | {
        f"sandbox, {name}": (folder, SANDBOX) for name, folder in folders.items()
    }
    GROUP.mkdir(exist_ok=True)
    rows: dict[str, dict[str, Any]] = {}
    samples: dict[str, list[tuple[float, float]]] = {}
    for runtime in arguments.runtimes:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        reused: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        program = shutil.which(runtime) or runtime
        for _ in range(arguments.rounds):
            for name, (folder, command) in kinds.items():
                found[name].append(measure(program, folder, command))
                if arguments.uses and command is not SLEEP:
                    reused[name].append(measure_uses(program, folder, uses=arguments.uses))
        floor = statistics.median(sum(each) for each in found["sleeps"])
        for name, costs in found.items():
            samples[f"{Path(runtime).name}, {name}"] = costs
            rows[f"{Path(runtime).name}, {name}"] = {
                "start CPU s": round(statistics.median(start for start, _ in costs), 3),
                "end CPU s": round(statistics.median(end for _, end in costs), 3),
                "more than sleeping": round(statistics.median(sum(each) for each in costs) - floor, 3),
            }
            uses = reused[name]
            samples[f"{Path(runtime).name}, {name}, uses"] = uses
            rows[f"{Path(runtime).name}, {name}"] |= {
                "a use CPU ms": round(1000 * statistics.median(used for used, _ in uses), 1) if uses else "",
                "cleaning ms": round(statistics.median(cleaned for _, cleaned in uses), 1) if uses else "",
            }
    GROUP.rmdir()
    print(table(rows))
    write_json(arguments.json, {"rows": rows, "samples": samples})


if __name__ == "__main__":
    main()
