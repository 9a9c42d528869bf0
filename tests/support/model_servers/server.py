"""A loopback server of a model's API. Its answers follow a script and the requests."""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.support.model_servers.script import Request, Scripted, Turn


class ModelServer:
    """Answers with the turns of its script, one after the other."""

    def __init__(self, *script: Scripted) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        """Requests that were answered, without refused ones."""
        self.attempts = 0
        self.paths: list[str] = []
        """Path and query of each request, refused ones included."""
        self.url = ""

    def rewrite(self, *script: Scripted) -> Self:
        """Begin again with another script."""
        self.script, self.requests, self.attempts, self.paths = list(script), [], 0, []
        return self

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        """Return what the API would refuse, or nothing."""
        raise NotImplementedError

    def reject(self, path: str, request: Request) -> tuple[int, Any] | None:
        """Return status and JSON, or a web page, of a request that a vendor's server refuses in its words, or None."""
        return None

    def answer(self, path: str, request: Request) -> tuple[int, Any]:
        """Return the status and JSON of a response to another path than that of answers."""
        return 404, {}

    def build(self, number: int, request: Request, turn: Turn) -> Any:
        """Return the JSON of an answer."""
        raise NotImplementedError

    def stream(self, number: int, request: Request, turn: Turn) -> Iterable[str]:
        """Yield the events of an answer, up to the place of the cut."""
        raise NotImplementedError

    def refuse(self, status: int, message: str) -> Any:
        """Return the JSON of an error."""
        raise NotImplementedError

    path = ""
    streams = True
    """Whether answers are streams if a request asks for it."""
    conversation = "messages"
    """Field of a request with the conversation."""

    def take(self, request: Request) -> Turn:
        """Return the next turn of the script."""
        self.attempts += 1
        scripted = self.script.pop(0)
        turn = scripted(request) if callable(scripted) else scripted
        turn = Turn(blocks=turn) if isinstance(turn, list) else turn
        if turn.status == 200:
            self.requests.append(request)
            number = len(self.requests)
            blocks = [
                {**block, "id": f"toolu_{number}_{index}"} if block["type"] == "tool_use" else block
                for index, block in enumerate(turn.blocks)
            ]
            turn = Turn(blocks=blocks, stop=turn.stop, usage=turn.usage, cut=turn.cut)
        return turn

    @contextmanager
    def serving(self) -> Iterator[Self]:
        """Serve at a port of loopback."""
        server = _Server(("127.0.0.1", 0), _Handler)
        server.api = self
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join(10)
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: ModelServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, _Server)
        api = self.server.api
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        api.paths.append(self.path)
        if rejected := api.reject(path, request):
            return self.send(*rejected)
        problem = api.find_problem(request, {name.lower(): value for name, value in self.headers.items()})
        if problem:
            return self.send(400, api.refuse(400, problem))
        if path != api.path:
            return self.send(*api.answer(path, request))
        turn = api.take(request)
        if turn.status != 200:
            return self.send(turn.status, api.refuse(turn.status, "refused"), turn.headers)
        number = len(api.requests)
        if not (request.get("stream") and api.streams):
            return self.send(200, api.build(number, request, turn))
        self.send_events(api.stream(number, request, turn), turn)

    def send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        is_page = isinstance(body, str)
        text = (body if is_page else json.dumps(body)).encode()
        self.send_response(status)
        kind = "text/html; charset=utf-8" if is_page else "application/json"
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def send_events(self, events: Iterable[str], turn: Turn) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            part = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()
        if turn.cut == "reset":
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""
