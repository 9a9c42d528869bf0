"""A proxy on loopback that writes down what a framework asks the gateway, so that `make test` can ask it again."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.support.pace import paced

KEPT = ("accept", "content-type", "mcp-method", "mcp-name", "mcp-protocol-version")
SECONDS = paced(120)


class Recorder(ThreadingHTTPServer):
    """Forwards to the gateway. `exchanges` has each request with the status of its answer."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(target)
        self.exchanges: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Recorder

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = HTTPConnection(str(self.server.target.hostname), self.server.target.port or 80, timeout=SECONDS)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        connection.request(self.command, self.path, body or None, {**headers, "Accept-Encoding": "identity"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.server.exchanges.append({
            "method": self.command,
            "path": self.path,
            "headers": {name: self.headers[name] for name in KEPT if name in self.headers},
            "has_session": "Mcp-Session-Id" in self.headers,
            "body": json.loads(body) if body else None,
            "status": answer.status,
        })  # fmt: skip
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() in ("content-type", "mcp-session-id", "allow", "location"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = do_PUT = do  # noqa: N815 - the names of http.server

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


@contextmanager
def recording(target: str) -> Iterator[Recorder]:
    """Serve at a port of loopback."""
    server = Recorder(target)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
