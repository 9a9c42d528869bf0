"""A real etcd and kube-apiserver on loopback, from the executables of KUBERNETES_BINARIES, without nodes.

Policies and rules of resources are enforced as on a cluster. With `controllers`, ServiceAccounts are created and the
roles `view`, `edit` and `admin` are filled. With `scheduler`, pods are bound to nodes, which a test simulates.
"""

import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
import yaml

from tests.support.pace import paced
from tests.support.ports import free_port
from tests.support.until import eventually

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = paced(120)
_TOKEN: Final = "an-administrator"
_UNPACK: Final = """
set -euo pipefail
. hack/lib.sh
. hack/devcluster/apt.sh
. hack/devcluster/binaries.sh
find_binaries
echo "$binaries"
"""


def find_binaries() -> Path:
    """Return the folder of the executables of KUBERNETES_BINARIES, unpacked. Skip the test if there are none."""
    if not os.environ.get("KUBERNETES_BINARIES"):
        pytest.skip("needs KUBERNETES_BINARIES, a folder with the executables of Kubernetes")
    ended = subprocess.run(
        ("bash", "-c", _UNPACK), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS
    )
    return Path(ended.stdout.strip())


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """A running API server and its administrator."""

    url: str
    etcd: str
    """URL of etcd, which takes requests of everybody on this machine."""
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of the administrator, who may impersonate everybody."""
        path = self.folder / "kubeconfig"
        if not path.exists():
            path.write_text(self._build_kubeconfig({"token": _TOKEN}))
        return path

    @property
    def audit_log(self) -> Path:
        """The log of all writes, of a plane that has one."""
        return self.folder / "audit.log"

    def build_kubeconfig_for(self, user: str, *groups: str) -> Path:
        """Return a kubeconfig of the administrator that impersonates a user."""
        path = self.folder / f"kubeconfig-{user.replace(':', '-').replace('/', '-')}"
        path.write_text(self._build_kubeconfig({"token": _TOKEN, "as": user, "as-groups": list(groups)}))
        return path

    def kubectl(self, *arguments: str, input: str = "", user: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator or as a user, and return how it ended."""
        config = self.build_kubeconfig_for(user) if user else self.kubeconfig
        return subprocess.run(
            ("kubectl", "--kubeconfig", str(config), *arguments),
            input=input, capture_output=True, text=True, check=False, timeout=SECONDS,
        )  # fmt: skip

    @contextmanager
    def connect(self) -> Iterator[httpx.Client]:
        """Return a client of the administrator; the header Impersonate-User makes it another user's."""
        context = ssl.create_default_context(cafile=str(self._ca))
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        with httpx.Client(
            base_url=self.url, verify=context, headers=headers, timeout=SECONDS, trust_env=False
        ) as client:
            yield client

    @property
    def _ca(self) -> Path:
        return self.folder / "certs" / "apiserver.crt"

    def _build_kubeconfig(self, user: dict[str, object]) -> str:
        named = {"name": "it"}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "it",
                "contexts": [{**named, "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{**named, "cluster": {"server": self.url, "certificate-authority": str(self._ca)}}],
                "users": [{**named, "user": user}],
            }
        )


@contextmanager
def running_control_plane(
    folder: Path, *, controllers: bool = False, scheduler: bool = False, audit: bool = False
) -> Iterator[ControlPlane]:
    """Run etcd, kube-apiserver and the chosen other parts, with their data in the folder. `audit` logs all writes."""
    binaries = find_binaries()
    (folder / "certs").mkdir(parents=True)
    key = folder / "sa.key"
    subprocess.run(("openssl", "genrsa", "-out", str(key), "2048"), check=True, capture_output=True, timeout=SECONDS)
    (folder / "tokens.csv").write_text(f'{_TOKEN},admin,admin,"system:masters"\n')
    client, peer, port, manager, scheduling = (free_port() for _ in range(5))
    etcd = f"http://127.0.0.1:{client}"
    plane = ControlPlane(url=f"https://127.0.0.1:{port}", etcd=etcd, folder=folder)
    with ExitStack() as stack:
        _start(
            stack, folder, binaries / "etcd", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync",
            "--enable-pprof",
            f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        )  # fmt: skip
        server = _start(
            stack, folder, binaries / "kube-apiserver", f"--etcd-servers={etcd}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder / 'certs'}",
            "--service-cluster-ip-range=10.200.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--authorization-mode=RBAC",
            f"--token-auth-file={folder / 'tokens.csv'}", "--endpoint-reconciler-type=none",
            *(_audit_flags(plane) if audit else ()),
        )  # fmt: skip
        _wait(plane, server, "/readyz", folder)
        if controllers:
            _start(
                stack, folder, binaries / "kube-controller-manager", f"--kubeconfig={plane.kubeconfig}",
                "--leader-elect=false", f"--service-account-private-key-file={key}", "--bind-address=127.0.0.1",
                f"--secure-port={manager}", f"--cert-dir={folder / 'manager-certs'}",
                "--use-service-account-credentials",
            )  # fmt: skip
            _wait(plane, server, "/api/v1/namespaces/default/serviceaccounts/default", folder)
        if scheduler:
            _start(
                stack, folder, binaries / "kube-scheduler", f"--kubeconfig={plane.kubeconfig}",
                "--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={scheduling}",
                f"--cert-dir={folder / 'scheduler-certs'}",
            )  # fmt: skip
        yield plane


def _audit_flags(plane: ControlPlane) -> tuple[str, str]:
    written = {"level": "Metadata", "verbs": ["create", "update", "patch", "delete"], "omitStages": ["RequestReceived"]}
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [written, {"level": "None"}]}
    path = plane.folder / "audit-policy.yaml"
    path.write_text(yaml.safe_dump(policy))
    return f"--audit-policy-file={path}", f"--audit-log-path={plane.audit_log}"


def _start(stack: ExitStack, folder: Path, *command: object) -> "subprocess.Popen[bytes]":
    name = Path(str(command[0])).name
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, cwd=folder)
    stack.callback(process.wait, SECONDS)
    stack.callback(process.kill)
    return process


def _wait(plane: ControlPlane, server: "subprocess.Popen[bytes]", path: str, folder: Path) -> None:
    """Wait until the API server answers a request with 200."""

    def answers() -> bool:
        assert server.poll() is None, (folder / "kube-apiserver.log").read_text()[-4000:]
        try:
            with plane.connect() as client:
                return client.get(path).status_code == 200
        except (httpx.TransportError, OSError):
            return False

    eventually(answers, seconds=120, what=f"the API server answers {path}")
