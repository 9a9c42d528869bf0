"""The broker's routes for files of sandboxes, on loopback and in memory, in threads."""

import json
import socket
import threading
from collections.abc import Callable
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mcp_exec_tools.workspace_files import build_frame_head, parse_frame_head

GRANT = "files-grant-of-this-test"
IDENTITY = "0" * 31 + "1"
Reply = tuple[int, bytes]


class FakeFiles:
    """One workspace with all its versions, and artifacts."""

    def __init__(self) -> None:
        self.versions: list[dict[str, tuple[bytes, int]]] = [{}]
        """Contents and modes by path, of each version."""
        self.contents: dict[str, bytes] = {}
        self.artifacts: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.uploaded: list[str] = []
        """Digests of the contents that were sent."""
        self.limits = {"maxBytes": 1 << 30, "maxFiles": 50_000, "maxFileBytes": 1 << 28}
        self.intercept: Callable[[str], Reply | None] = lambda path: None
        """Returns the answer to a request in place of the usual one, or None."""
        files = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_GET(self) -> None:
                files.answer(self)

            do_POST = do_GET  # noqa: N815 - the name is http.server's

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(20)

    def job(self, mode: str | None = "Write", **fields: Any) -> dict[str, Any]:
        """The job's `files`; without a workspace if `mode` is None."""
        workspace = {} if mode is None else {"workspace": {"name": "notes", "mode": mode}}
        url = f"http://127.0.0.1:{self._server.server_port}"
        return {"url": url, "token": GRANT, "maxArtifacts": 32, "maxArtifactBytes": 1 << 20, **workspace, **fields}

    def commit(self, **texts: str) -> None:
        """Add a version with these files as a request of somebody else does; `__` stands for a slash."""
        self.add_version({path.replace("__", "/"): (text.encode(), 0o644) for path, text in texts.items()})

    def add_version(self, files: dict[str, tuple[bytes, int]]) -> None:
        self.contents |= {sha256(data).hexdigest(): data for data, _ in files.values()}
        self.versions.append(files)

    def texts(self) -> dict[str, str]:
        """The files of the newest version."""
        return {path: data.decode() for path, (data, _) in self.versions[-1].items()}

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"] or 0))
        self.requests.append(f"{handler.command} {handler.path}")
        if handler.headers["authorization"] != f"Bearer {GRANT}":
            reply: Reply = 401, b'{"reason": "NotAuthenticated", "message": "no such grant"}'
        else:
            reply = self.intercept(handler.path) or self._reply(handler, body)
        status, content = reply
        if status == 0:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        handler.send_response(status)
        if status != 304:
            handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _reply(self, handler: BaseHTTPRequestHandler, body: bytes) -> Reply:
        routes: dict[str, Callable[[bytes], Reply]] = {
            "/v1/files/blobs/get": self._send_contents,
            "/v1/files/blobs/missing": self._list_missing,
            "/v1/files/blobs": self._take_contents,
            "/v1/files/commit": self._commit,
            "/v1/files/artifacts": self._take_artifact,
        }
        if handler.path == "/v1/files/manifest":
            return self._send_manifest(handler.headers["if-none-match"])
        return routes[handler.path](body)

    def _send_manifest(self, known: str | None) -> Reply:
        version = len(self.versions) - 1
        if known == f'"{IDENTITY}-{version}"':
            return 304, b""
        files = self.versions[-1]
        head = {"id": IDENTITY, "version": version, "files": len(files), "bytes": 0, **self.limits}
        entries = [
            {"path": path, "size": len(data), "sha256": sha256(data).hexdigest(), "mode": mode}
            for path, (data, mode) in files.items()
        ]
        return 200, b"".join(json.dumps(line).encode() + b"\n" for line in (head, *entries))

    def _send_contents(self, body: bytes) -> Reply:
        found = [(digest, self.contents[digest]) for digest in json.loads(body)["sha256"]]
        return 200, b"".join(build_frame_head(digest, len(data)) + data for digest, data in found)

    def _list_missing(self, body: bytes) -> Reply:
        return _json({"missing": [each for each in json.loads(body)["sha256"] if each not in self.contents]})

    def _take_contents(self, body: bytes) -> Reply:
        while body:
            line, _, body = body.partition(b"\n")
            digest, size = parse_frame_head(line + b"\n")
            data, body = body[:size], body[size:]
            assert sha256(data).hexdigest() == digest
            self.contents[digest] = data
            self.uploaded.append(digest)
        return _json({"contents": 1, "bytes": 1})

    def _commit(self, body: bytes) -> Reply:
        head, *lines = map(json.loads, body.splitlines())
        assert (head["id"], head["files"]) == (IDENTITY, len(lines))
        files = {line["path"]: (self.contents[line["sha256"]], line["mode"]) for line in lines}
        if self.versions[-1] != files:  # a repetition has the same answer
            if head["base"] != len(self.versions) - 1:
                return 409, b'{"reason": "Conflict", "message": "version 2 is newer"}'
            self.versions.append(files)
        return _json({"version": len(self.versions) - 1, "base": head["base"]})

    def _take_artifact(self, body: bytes) -> Reply:
        line, _, data = body.partition(b"\n")
        head = json.loads(line)
        assert (head["size"], head["sha256"]) == (len(data), sha256(data).hexdigest())
        self.artifacts.append({**head, "data": data})
        return _json({"id": head["sha256"][:16]})


def _json(value: Any) -> Reply:
    return 200, json.dumps(value).encode()
