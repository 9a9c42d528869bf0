"""Front doors of the gateway as processes: nginx and Envoy, by the configurations of docs/platform/expose.md."""

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from tests.support.mounts import write_version
from tests.support.pages import DOCS
from tests.support.ports import free_port
from tests.support.until import eventually

Kind = Literal["nginx", "envoy"]
Changes = Sequence[tuple[str, str]]
"""Texts of a configuration and what replaces them."""

SERVICE: Final = "mcp-exec-gateway.mcp-exec-system.svc"
"""Name of the gateway in the configurations, and in the certificate of a gateway that serves TLS."""
PAGE: Final = DOCS / "platform/expose.md"
_BLOCK: Final = re.compile(r"^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NGINX: Final = """\
daemon off;
pid {folder}/nginx.pid;
worker_processes 1;
{user}
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    scgi_temp_path {folder}/scgi;
    uwsgi_temp_path {folder}/uwsgi;
    include {folder}/agents.conf;
}}
"""


def read_blocks(heading: str) -> list[str]:
    """Return the blocks of code below a heading of the page."""
    sections = PAGE.read_text().split(f"\n## {heading}\n")
    assert len(sections) == 2, f"the page has no heading {heading}"
    return _BLOCK.findall(sections[1].split("\n## ")[0])


@dataclass(frozen=True, kw_only=True)
class Door:
    """A front door that runs."""

    kind: Kind
    folder: Path
    port: int
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has logged."""
        return (self.folder / "log").read_text()

    def renew(self, certificate: str) -> None:
        """Replace certificate and key, in PEM, as the page says."""
        write_certificate(self.folder / "tls", certificate)
        if self.kind == "nginx":
            self.process.send_signal(signal.SIGHUP)


def write_certificate(folder: Path, certificate: str, **entries: str) -> None:
    """Write a certificate with its key behind it, and other entries, as the kubelet mounts a Secret."""
    folder.mkdir(exist_ok=True)
    chain, begin, key = certificate.partition("-----BEGIN PRIVATE KEY-----")
    files = {"tls.crt": chain, "tls.key": begin + key, **{f"{name}.crt": text for name, text in entries.items()}}
    write_version(folder, {name: text.encode() for name, text in files.items()})


@contextmanager
def running_door(
    kind: Kind,
    folder: Path,
    *,
    gateways: Sequence[str],
    certificate: str,
    authority: str | None = None,
    changes: Changes = (),
    programs: str = "",
) -> Iterator[Door]:
    """Run a front door of gateways at these addresses, each with its port.

    `authority` issued the certificates of gateways that serve TLS; without it, they serve plain HTTP. `programs` is a
    folder that is searched after PATH.
    """
    folder.mkdir()
    write_certificate(folder / "tls", certificate, **({"ca": authority} if authority else {}))
    port = free_port()
    write = {"nginx": _write_nginx, "envoy": _write_envoy}[kind]
    arguments = write(folder, port, gateways, secured=authority is not None, changes=changes)
    program = shutil.which(kind, path=f"{os.environ['PATH']}{os.pathsep}{programs}")
    assert program, f"there is no {kind}: hack/tools {kind} installs it"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
    door = Door(kind=kind, folder=folder, port=port, process=process)
    try:
        eventually(lambda: process.poll() is not None or _listens(port), what=f"{kind} listens")
        assert process.poll() is None, door.log
        yield door
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _replace(text: str, changes: Changes) -> str:
    for old, new in changes:
        assert old in text, f"the page's configuration has no {old}"
        text = text.replace(old, new)
    return text


def _write_nginx(folder: Path, port: int, gateways: Sequence[str], *, secured: bool, changes: Changes) -> list[str]:
    text, tls = read_blocks("nginx")
    servers = "\n    ".join(f"server {each};" for each in gateways)
    placed: Changes = [
        (f"server {SERVICE}:80;", servers),
        ("listen 443 ", f"listen 127.0.0.1:{port} "),
        *([("proxy_pass http://gateway;", tls)] if secured else []),
        ("/etc/nginx/", f"{folder}/"),
    ]
    (folder / "agents.conf").write_text(_replace(text, (*changes, *placed)))
    # the master opens files as the user that started it, and its workers as another one if that is root
    user = "user root root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, user=user))
    return ["-p", str(folder), "-c", "nginx.conf"]


def _write_envoy(folder: Path, port: int, gateways: Sequence[str], *, secured: bool, changes: Changes) -> list[str]:
    text, secret, tls = read_blocks("Envoy")
    places: Changes = [("/etc/envoy/", f"{folder}/")]
    config: dict[str, Any] = yaml.safe_load(_replace(text, (*changes, *places)))
    (listener,), (cluster,) = (config["static_resources"][name] for name in ("listeners", "clusters"))
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    ((group,),) = [cluster["load_assignment"]["endpoints"]]
    ((endpoint,),) = [group["lb_endpoints"]]
    assert endpoint["endpoint"]["address"]["socket_address"] == {"address": SERVICE, "port_value": 80}
    sockets = [{"address": host, "port_value": int(number)} for host, number in (each.split(":") for each in gateways)]
    group["lb_endpoints"] = [{"endpoint": {"address": {"socket_address": each}}} for each in sockets]
    if secured:
        cluster.update(yaml.safe_load(_replace(tls, places)))
    (folder / "envoy.yaml").write_text(yaml.safe_dump(config))
    (folder / "secret.yaml").write_text(_replace(secret, places))
    return ["-c", str(folder / "envoy.yaml"), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]
