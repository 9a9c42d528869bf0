"""gVisor on the workers of kind: its archive by hack/fetch.py, and the nodes' configuration by hack/kind/gvisor."""

import bz2
import hashlib
import io
import sys
import tarfile
from pathlib import Path

import pytest
from tests.component.hack.shims import Nodes

FILES = ("./runsc", "./containerd-shim-runsc-v1", "./gvisor-bin/gvisor_sentry")


def packed(*names: str) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = len(name)
            archive.addfile(entry, io.BytesIO(name.encode()))
    return bz2.compress(raw.getvalue())


class Worker:
    """Simulated worker of the cluster mcp-exec, whose files are below a folder."""

    def __init__(self, docker: Nodes) -> None:
        self.docker = docker
        self.root = docker.folder / "worker"
        self.write("/etc/containerd/config.toml", "version = 2\n")
        self.write("/var/lib/kubelet/config.yaml", "cgroupDriver: cgroupfs\n")
        (self.root / "usr/local/bin").mkdir(parents=True)
        (self.root / "kind").mkdir()
        # The stub of hack/kind/gvisor was for tests of its callers.
        script = docker.checkout / "hack/kind/gvisor"
        script.write_text((Path(__file__).parents[3] / "hack/kind/gvisor").read_text())
        paths = f"sed -E 's#(^|[ >=\"])/(kind|etc|usr|var|sys)/#\\1{self.root}/\\2/#g'"
        docker.stand_in("systemctl")
        docker.stand_in("python3", f'exec {sys.executable} "$@"')
        docker.stand_in(
            "docker",
            f"""case "$1 $2" in
            "ps "*) echo worker;;
            "exec --interactive") shift 3; "$@" < <({paths});;
            "exec worker") shift 2; if [ "$1" = uname ]; then echo aarch64; else eval "$(echo "$@" | {paths})"; fi;;
            "cp "*) cp -R "$2" "{self.root}${{3#worker:}}";;
            esac""",
        )

    def write(self, path: str, text: str) -> None:
        file = self.root / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, path: str) -> str:
        return (self.root / path[1:]).read_text()

    def run(self) -> str:
        """Run hack/kind/gvisor, and return its messages."""
        kubeconfig = str(self.docker.folder / "kubeconfig")
        done = self.docker.run("kind/gvisor", "mcp-exec", kubeconfig, MCP_EXEC_GVISOR_URL=self.mirror)
        assert done.returncode == 0, done.stderr
        return done.stderr

    mirror = ""

    def publish(self, *names: str) -> None:
        """Let a mirror have gVisor's archive for arm64, and lock it."""
        content = packed(*names)
        file = self.docker.folder / "mirror/20260101.0/aarch64/gvisor.tar.bz2"
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
        lock = f"gvisor 20260101.0 linux arm64 {hashlib.sha512(content).hexdigest()}\n"
        (self.docker.checkout / "locks/tools.txt").write_text(lock)
        self.mirror = (self.docker.folder / "mirror").as_uri()

    @property
    def binaries(self) -> set[str]:
        folder = self.root / "usr/local/bin"
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def worker(docker: Nodes) -> Worker:
    found = Worker(docker)
    found.publish(*FILES)
    return found


@pytest.fixture
def packaged(worker: Worker) -> Worker:
    """The node image has gVisor, and no mirror does."""
    for name in ("runsc", "containerd-shim-runsc-v1"):
        worker.write(f"/kind/gvisor/{name}", name)
    worker.mirror = "file:///nowhere"
    return worker


def test_a_worker_gets_all_programs_of_the_locked_archive(worker: Worker) -> None:
    assert worker.run() == "==> Fetching gVisor\n"
    assert worker.binaries == {name[2:] for name in FILES}
    assert (worker.root / "usr/local/bin/gvisor-bin/gvisor_sentry").stat().st_mode & 0o111
    (label,) = [call for call in worker.docker.calls("kubectl") if " label " in call]
    assert label.endswith("label node worker --overwrite mcp-exec.dev/runtime=gvisor")
    assert worker.run() == ""


@pytest.mark.parametrize(
    ("names", "reason"),
    [((), "differs from locks/tools.txt"), ((*FILES, "../escaped"), "a file outside of its folder")],
    ids=["other-checksum", "escaping"],
)
def test_another_archive_is_not_installed_and_the_cluster_goes_on(
    worker: Worker, names: tuple[str, ...], reason: str
) -> None:
    if names:
        content = packed(*names)
        (worker.docker.checkout / "locks/tools.txt").write_text(
            f"gvisor 20260101.0 linux arm64 {hashlib.sha512(content).hexdigest()}\n"
        )
    else:
        content = packed("./runsc")
    (worker.docker.folder / "mirror/20260101.0/aarch64/gvisor.tar.bz2").write_bytes(content)
    said = worker.run()
    assert reason in said
    assert "gVisor cannot be had: sandboxes will run with the cluster's default runtime" in said
    assert worker.binaries == set()
    assert not list((worker.docker.folder / "home").rglob("*escaped"))
    assert not list((worker.docker.folder / "home").rglob("*.part"))
    assert worker.docker.calls("kubectl") == []


def test_a_node_image_with_gvisor_needs_no_download(packaged: Worker) -> None:
    assert packaged.run() == ""
    assert packaged.binaries == {"runsc", "containerd-shim-runsc-v1"}


@pytest.mark.parametrize(("version", "plugin"), [(2, "io.containerd.grpc.v1.cri"), (3, "io.containerd.cri.v1.runtime")])
def test_the_runtime_is_added_once_under_the_name_of_the_configurations_version(
    packaged: Worker, version: int, plugin: str
) -> None:
    packaged.write("/etc/containerd/config.toml", f"version = {version}\n")
    packaged.run()
    packaged.run()
    assert packaged.read("/etc/containerd/config.toml").count(f'[plugins."{plugin}".containerd.runtimes.runsc]') == 1
    assert packaged.docker.calls("systemctl") == ["restart containerd"]


@pytest.mark.parametrize(
    ("unified", "driver", "asks"), [(True, "systemd", True), (False, "systemd", False), (True, "cgroupfs", False)]
)
def test_runsc_asks_systemd_for_cgroups_if_the_kubelet_does_on_cgroup_v2(
    packaged: Worker, unified: bool, driver: str, asks: bool
) -> None:
    if unified:
        packaged.write("/sys/fs/cgroup/cgroup.controllers", "memory pids\n")
    packaged.write("/var/lib/kubelet/config.yaml", f"cgroupDriver: {driver}\n")
    said = packaged.run()
    assert ("This machine has cgroup v1: gVisor does not apply" in said) is (driver == "systemd" and not asks)
    written = packaged.read("/etc/containerd/runsc.toml")
    assert written.startswith('[runsc_config]\n  platform = "systrap"\n')
    assert ('  systemd-cgroup = "true"\n' in written) is asks
