"""An API server for custom resources alone, with an etcd of its own, both on loopback."""

import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from mcp_exec_api.crd_schema import build_definitions
from tests.support.processes import free_port, write_kubeconfig
from tests.support.until import eventually

_SECONDS = 60
# The server requires options of a whole API server that tests of CRDs do not need.
_NOWHERE = "http://127.0.0.1:9"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# The first needs no more than namespaces; a cluster of before 1.30 has no such policies.
_NAMESPACES = "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook"
_POLICIES = "MutatingAdmissionPolicy,ValidatingAdmissionPolicy"


@dataclass(frozen=True, kw_only=True)
class Core:
    """The cluster whose users the server knows, and the address at which that cluster finds it."""

    kubeconfig: Path
    address: str


@contextmanager
def serving(binary: Path, folder: Path, *, core: Core | None = None) -> Iterator[httpx.Client]:
    """A client of the server, as a member of `system:masters`, whom it lets do everything without asking anybody.

    Without a cluster it has no namespaces, and nobody but that client can use it.
    """
    certificate = _master_certificate(folder)
    client_port, peer_port, port = free_port(), free_port(), free_port()
    etcd, host = f"http://127.0.0.1:{client_port}", core.address if core else "127.0.0.1"
    with ExitStack() as stack:
        stack.enter_context(
            _running(
                folder / "etcd.log", "etcd", "--data-dir", str(folder / "etcd"),
                "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
                "--listen-peer-urls", f"http://127.0.0.1:{peer_port}",
            )
        )  # fmt: skip
        whole = str(core.kubeconfig if core else write_kubeconfig(folder / "kubeconfig", _NOWHERE))
        apart = () if core else ("--authentication-skip-lookup",)
        stack.enter_context(
            _running(
                folder / "apiserver.log", str(binary), "--etcd-servers", etcd, "--bind-address", host,
                "--secure-port", str(port), "--cert-dir", str(folder / "certificates"),
                "--client-ca-file", str(certificate), *apart,
                "--kubeconfig", whole, "--authentication-kubeconfig", whole, "--authorization-kubeconfig", whole,
                "--enable-priority-and-fairness=false",
                "--disable-admission-plugins", _POLICIES if core else f"{_POLICIES},{_NAMESPACES}",
            )
        )  # fmt: skip
        client = stack.enter_context(_client(f"https://{host}:{port}", certificate))
        eventually(lambda: _answers(client), seconds=_SECONDS, what=f"the API server answers; see {folder}")
        yield client


def define(client: httpx.Client) -> None:
    """Creates the CRDs of this checkout there; returns when they are served."""
    for crd in build_definitions().values():
        answer = client.post(_DEFINITIONS, json=crd)
        assert answer.status_code == httpx.codes.CREATED, answer.text
    eventually(lambda: "Established" in _conditions(client), seconds=_SECONDS, what="the CRDs are established")


def _conditions(client: httpx.Client) -> set[str]:
    """The conditions that are true of each CRD."""
    items: list[dict[str, Any]] = client.get(_DEFINITIONS).json()["items"]
    conditions = [item["status"].get("conditions") or [] for item in items]
    found = [{each["type"] for each in of_one if each["status"] == "True"} for of_one in conditions]
    return set.intersection(*found)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get(_DEFINITIONS).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@contextmanager
def _running(log: Path, *command: str) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ))
    try:
        yield
    finally:
        process.kill()  # its data goes with the test
        process.wait(_SECONDS)


def _master_certificate(folder: Path) -> Path:
    """A certificate with its key, which is its own authority too."""
    path = folder / "master.pem"
    subprocess.run(
        ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2",
         "-subj", "/O=system:masters/CN=tests", "-keyout", str(path), "-out", str(folder / "master.crt")),
        check=True, capture_output=True, timeout=_SECONDS,
    )  # fmt: skip
    path.write_text(path.read_text() + (folder / "master.crt").read_text())
    return path


@contextmanager
def _client(url: str, certificate: Path) -> Iterator[httpx.Client]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the server made its certificate itself
    context.load_cert_chain(certificate)
    with httpx.Client(base_url=url, verify=context, timeout=_SECONDS, trust_env=False) as client:
        yield client
