"""The broker's port for calls of sandboxes, on loopback. It runs in threads: tests of a sandbox are synchronous."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.pace import paced

SECONDS = paced(20)
GRANT = "grant-of-this-test"


class Call:
    """A call that has arrived, with methods that answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self._handler = handler
        self.body = body
        self.id, self.tool, self.arguments = body["id"], body["tool"], body["arguments"]

    def send(self, **line: Any) -> None:
        """Send one line of the answer."""
        data = json.dumps(line).encode() + b"\n"
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def value(self, value: Any, **fields: Any) -> None:
        self.send(type="result", tool=self.tool, value=value, **fields)

    def content(self, *blocks: dict[str, Any], **fields: Any) -> None:
        self.send(type="result", tool=self.tool, content=list(blocks), **fields)

    def error(self, kind: str, message: str, **fields: Any) -> None:
        known = {"code": None, "reason": None, "tool": self.tool, "server": self.tool.partition(".")[0]}
        self.send(type="error", kind=kind, message=message, **(known | fields))

    def break_off(self) -> None:
        """Close the connection in the middle."""
        self._handler.connection.shutdown(socket.SHUT_RDWR)

    def wait_until_closed(self) -> None:
        """Return when the sandbox has closed the connection."""
        self._handler.connection.settimeout(SECONDS)
        with contextlib.suppress(ConnectionResetError):
            assert self._handler.connection.recv(1) == b""


class FakeBrokerCalls:
    """Answers each call by the function in `tools`, or returns its arguments."""

    def __init__(self) -> None:
        self.tools: dict[str, Callable[[Call], None]] = {}
        self.calls: list[Call] = []
        self.connections = 0
        self.most_at_a_time = 0
        self.cancelled = threading.Event()
        self._running = 0
        self._lock = threading.Lock()
        broker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                broker.connections += 1

            def do_POST(self) -> None:
                broker.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a sandbox that is killed resets its connections

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def job(self) -> dict[str, Any]:
        """The job's `tools`, with all tools allowed."""
        return {"url": f"http://127.0.0.1:{self._server.server_port}", "token": GRANT, "allow": ["*.*"]}

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        if handler.path != "/v1/calls" or handler.headers["authorization"] != f"Bearer {GRANT}":
            handler.send_response(401)
            problem = json.dumps({"title": "Unauthorized", "detail": "no such grant"}).encode()
            handler.send_header("content-length", str(len(problem)))
            handler.end_headers()
            handler.wfile.write(problem)
            return
        call = Call(handler, json.loads(body))
        with self._lock:
            self.calls.append(call)
            self._running += 1
            self.most_at_a_time = max(self.most_at_a_time, self._running)
        handler.send_response(200)
        handler.send_header("content-type", "application/x-ndjson")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        try:
            self.tools.get(call.tool, lambda each: each.value(each.arguments))(call)
        finally:
            with self._lock:
                self._running -= 1
        try:
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.cancelled.set()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(SECONDS)
