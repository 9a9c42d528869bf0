"""An API server for custom resources alone, with an etcd of its own, both on loopback."""

import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

_SECONDS = 60
# They need parts of an API server that is not there: namespaces, webhooks and policies.
_ADMISSION = (
    "NamespaceLifecycle,MutatingAdmissionPolicy,MutatingAdmissionWebhook,"
    "ValidatingAdmissionPolicy,ValidatingAdmissionWebhook"
)


@contextmanager
def serving(binary: Path, folder: Path) -> Iterator[httpx.Client]:
    """A client of the server, as a member of `system:masters`, whom it lets do everything without asking anybody."""
    certificate = _master_certificate(folder)
    client_port, peer_port, port = _free_port(), _free_port(), _free_port()
    etcd = f"http://127.0.0.1:{client_port}"
    with ExitStack() as stack:
        stack.enter_context(
            _running(
                folder / "etcd.log", "etcd", "--data-dir", str(folder / "etcd"),
                "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
                "--listen-peer-urls", f"http://127.0.0.1:{peer_port}",
            )
        )  # fmt: skip
        nowhere = str(_kubeconfig_of_nothing(folder))
        stack.enter_context(
            _running(
                folder / "apiserver.log", str(binary), "--etcd-servers", etcd, "--bind-address", "127.0.0.1",
                "--secure-port", str(port), "--cert-dir", str(folder / "certificates"),
                "--client-ca-file", str(certificate), "--authentication-skip-lookup",
                "--kubeconfig", nowhere, "--authentication-kubeconfig", nowhere, "--authorization-kubeconfig", nowhere,
                "--enable-priority-and-fairness=false", "--disable-admission-plugins", _ADMISSION,
            )
        )  # fmt: skip
        client = stack.enter_context(_client(f"https://127.0.0.1:{port}", certificate))
        eventually(lambda: _answers(client), what=f"the API server answers; see {folder}")
        yield client


def eventually(check: Any, *, what: str) -> None:
    """Returns when it holds; AssertionError after a minute."""
    deadline, pause = time.monotonic() + _SECONDS, threading.Event()
    while not check():
        assert time.monotonic() < deadline, f"not within {_SECONDS} s: {what}"
        pause.wait(0.1)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").status_code == httpx.codes.OK
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


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _kubeconfig_of_nothing(folder: Path) -> Path:
    """The server wants to know of a whole API server, which these tests have no use for."""
    named = {"name": "none"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "none",
        "contexts": [{**named, "context": {"cluster": "none", "user": "none"}}],
        "clusters": [{**named, "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{**named, "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
