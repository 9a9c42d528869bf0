"""The command writes one line before it sends a key over a network in plain text."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.pace import paced

COMMAND = ["-m", "mcp_exec_client", "mcp", "--gateway"]
"""A command that only looks whether the gateway is there, because its standard input is empty."""


class Proxy(BaseHTTPRequestHandler):
    """An HTTP proxy that refuses everything: a gateway that answers, for the command, whatever its address is."""

    def do_GET(self) -> None:
        self.send_error(403)

    def do_CONNECT(self) -> None:
        self.send_error(403)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        assert isinstance(self.server, ProxyServer)
        self.server.asked.append(self.path)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


class ProxyServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Proxy)
        self.asked: list[str] = []
        """What it was asked for."""


@pytest.fixture
def proxy() -> Iterator[ProxyServer]:
    with ProxyServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def errors(folder: Path, proxy: ProxyServer, gateway: str, *options: str, **variables: str) -> list[str]:
    """Return the lines on standard error of a command that has a key."""
    address = f"http://127.0.0.1:{proxy.server_address[1]}"
    environment = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(folder), "MCP_EXEC_API_KEY": "mcpx_secret"}
    environment |= {"HTTP_PROXY": address, "HTTPS_PROXY": address, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    proxy.asked.clear()
    done = subprocess.run(
        [sys.executable, *options, *COMMAND, gateway],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=paced(60), check=False,
        env=environment | variables, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.stdout == ""
    assert len(proxy.asked) == 1, "the command asks the gateway"
    return done.stderr.splitlines()


@pytest.mark.parametrize("options", [(), ("-W", "error::UserWarning")], ids=["as it is", "with warnings as errors"])
def test_a_key_over_plain_http_to_another_machine_is_one_line(
    tmp_path: Path, proxy: ProxyServer, options: tuple[str, ...]
) -> None:
    (line,) = errors(tmp_path, proxy, "http://gateway.test:8080", *options)
    assert line.startswith("mcp-exec: warning: the key is sent to http://gateway.test:8080 over plain HTTP")
    assert "MCP_EXEC_PLAIN_HTTP=yes" in line
    assert "mcpx_secret" not in line


def test_what_is_encrypted_local_or_intended_is_no_line(tmp_path: Path, proxy: ProxyServer) -> None:
    assert errors(tmp_path, proxy, "https://gateway.test") == []
    assert errors(tmp_path, proxy, f"http://127.0.0.1:{proxy.server_address[1]}") == []
    assert errors(tmp_path, proxy, "http://gateway.test:8080", MCP_EXEC_PLAIN_HTTP="yes") == []
