"""A copy of hack/ on a simulated machine: a PATH with stubs of commands that record their calls."""

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tests.support.pace import paced

ROOT = Path(__file__).parents[3]
# Commands that the scripts use and that every system has.
COMMON = (
    "awk", "base64", "basename", "bash", "cat", "chmod", "cksum", "cp", "cut", "date", "df", "dirname", "env",
    "find", "flock", "grep", "head", "install", "ln", "ls", "mkdir", "mktemp", "mv", "rm", "sed", "seq", "sh",
    "sha256sum", "sleep", "sort", "tail", "tar", "timeout", "touch", "tr", "xargs",
)  # fmt: skip
UBUNTU = 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n'
DEBIAN_12 = 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Simulated machine with a checkout. The file `calls` has one line for each call of a stub."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> "Machine":
        """Create Debian 12 on x86-64, as root, without other commands."""
        machine = cls(folder=folder)
        for name in ("bin", "home", "checkout"):
            (folder / name).mkdir()
        for name in COMMON:
            found = shutil.which(name)
            assert found, f"this machine has no {name}"
            (folder / "bin" / name).symlink_to(found)
        shutil.copytree(ROOT / "hack", machine.checkout / "hack", ignore=shutil.ignore_patterns("__pycache__"))
        (machine.checkout / "locks").mkdir()
        shutil.copy(ROOT / "locks/kind.txt", machine.checkout / "locks")
        (folder / "calls").touch()
        machine.release(DEBIAN_12)
        machine.hardware("Linux", "x86_64")
        machine.stand_in("id", "echo 0")
        return machine

    @property
    def checkout(self) -> Path:
        return self.folder / "checkout"

    def stand_in(self, name: str, script: str = "") -> None:
        """Add a stub command that records its arguments and then runs a line of shell."""
        path = self.folder / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!{shutil.which("bash")}\necho "{name} $*" >> "{self.folder}/calls"\n{script}\n')
        path.chmod(0o755)

    def hardware(self, system: str, name: str) -> None:
        """Set the system's and the processor's name, as in uname."""
        self.stand_in("uname", f'case "$1" in -s) echo {system} ;; -sm) echo {system} {name} ;; *) echo {name} ;; esac')

    def become_mac(self) -> None:
        """Turn this into macOS on arm64: Python and perl's shasum instead of GNU's commands."""
        for name in ("flock", "sha256sum", "timeout"):
            (self.folder / "bin" / name).unlink()
        self.stand_in("python3", f'exec {sys.executable} "$@"')
        self.stand_in("shasum", f'shift 2; exec {shutil.which("sha256sum")} "$@"')
        self.stand_in("id", "echo 501")
        self.hardware("Darwin", "arm64")

    def release(self, text: str) -> None:
        """Set the system's name, as in /etc/os-release."""
        (self.folder / "os-release").write_text(text)

    def calls(self, name: str) -> list[str]:
        """Return the arguments of each call of a stub."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the checkout's hack/ on this machine."""
        return subprocess.run(
            [str(self.checkout / "hack" / script), *arguments],
            capture_output=True, text=True, timeout=paced(60), check=False, stdin=subprocess.DEVNULL, cwd=self.checkout,
            env={
                "PATH": str(self.folder / "bin"),
                "HOME": str(self.folder / "home"),
                "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
                "DEVCLUSTER_OS_RELEASE": str(self.folder / "os-release"),
                **environment,
            },
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Nodes(Machine):
    """Machine with a Docker engine and kind. Files of `folder` say what these return."""

    @classmethod
    def made(cls, folder: Path) -> "Nodes":
        """Create the machine without a cluster."""
        Machine.made(folder)
        machine = cls(folder=folder)
        for name in ("clusters", "mark", "node-images", "log", "version"):
            (folder / name).touch()
        for name in ("gvisor", "node-image"):
            (machine.checkout / "hack/kind" / name).write_text("#!/bin/bash\necho packaged:1\n")
        # These are tests of the scripts, not of the configuration's content.
        (machine.checkout / "hack/kind/kind.yaml").write_text("kind: Cluster\n")
        machine.engine()
        machine.stand_in(
            "kind",
            f'case "$1 $2" in "get clusters") cat {folder}/clusters;; "get nodes") echo worker;; '
            f'"create cluster") [ ! -s {folder}/log ] || {{ cat {folder}/log >&2; exit 1; }}; '
            f'echo "$4" > {folder}/clusters; touch {folder}/running;; version*) cat {folder}/version;; '
            f'"delete cluster") : > {folder}/clusters;; '
            f'"export kubeconfig") [ -e {folder}/running ];; esac',
        )
        machine.stand_in(
            "kubectl", f'case "$*" in *jsonpath*) cat {folder}/mark;; *annotate*) echo made > {folder}/mark;; esac'
        )
        return machine

    def engine(self, *, memory: int = 16 << 30, cgroup: int = 2, system: str = "linux", machine: str = "x86_64",
               root: str = "/nowhere", security: str = "[]", errors: str = "") -> None:  # fmt: skip
        """Let the engine describe itself by these values. The file `running` lets its node run, `offline` no pull."""
        version = "" if errors else "28.0.0"
        here = self.folder
        info = "|".join([version, str(memory), str(cgroup), system, machine, root, security, errors])
        self.stand_in(
            "docker",
            f"case \"$1 $*\" in *'{{{{.CgroupVersion}}}}') echo {cgroup};; info*) echo '{info}';; "
            f"inspect*) [ -e {here}/running ] && echo true || echo false;; start*) touch {here}/running;; "
            f'pull*) [ ! -e {here}/offline ] || {{ echo "Error: no such host." >&2; exit 1; }};; '
            f'*"image inspect kindest"*) exit 1;; *"exec worker"*) cat {here}/node-images;; esac',
        )

    def cluster(self, name: str = "mcp-exec", *, mark: str = "", running: bool = True) -> None:
        """Let kind have a cluster that somebody else made."""
        (self.folder / "clusters").write_text(f"{name}\n")
        (self.folder / "mark").write_text(mark)
        if running:
            (self.folder / "running").touch()


def archive(machine: Machine, name: str, **members: str) -> Path:
    """Write the archive of an image with these files."""
    path = machine.checkout / ".cache/images" / f"{name}.tar"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for member, content in members.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, BytesIO(content.encode()))
    return path


def docker_archive(machine: Machine, name: str, identity: str) -> Path:
    """Write an archive as `docker save` does: its manifest names the image's configuration by its digest."""
    content = f'[{{"Config":"{identity}.json","RepoTags":["localhost/mcp-exec-{name}:dev"],"Layers":[]}}]'
    return archive(machine, name, **{"manifest.json": content})


def oci_archive(machine: Machine, name: str, identity: str) -> Path:
    """Write an archive as `buildah push` does: its index names a manifest, which names the configuration."""
    index = f'{{"schemaVersion":2,"manifests":[{{"digest":"sha256:{"3" * 64}","size":1}}]}}'
    manifest = f'{{"schemaVersion":2,"config":{{"size":1,"digest":"sha256:{identity}"}},"layers":[]}}'
    return archive(machine, name, **{"index.json": index, f"blobs/sha256/{'3' * 64}": manifest})


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """Return the single line of the error message of a failed script."""
    assert done.returncode == 1, done
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].endswith(".")
    return lines[0]
