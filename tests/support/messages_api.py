"""A loopback server of Anthropic's Messages API. Its answers follow a script and the requests.

It holds its caller to the protocol as the real one does: a key, a version, and a result for each use of a tool.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-ant-loopback"
Request = dict[str, Any]
Block = dict[str, Any]
Turn = list[Block] | Callable[[Request], list[Block]]


def says(text: str) -> Block:
    return {"type": "text", "text": text}


def uses(name: str, **given: Any) -> Block:
    """Return a use of a tool; each has its own id."""
    return {"type": "tool_use", "id": "", "name": name, "input": given}


def results_in(request: Request) -> list[Block]:
    """Return the results of tools in the newest message."""
    content = request["messages"][-1]["content"]
    return [block for block in content if block["type"] == "tool_result"]


class MessagesApi:
    """Answers with the turns of the script, one after the other."""

    def __init__(self, *script: Turn) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.url = ""

    def answer(self, request: Request, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        problem = self._problem(request, headers)
        if problem:
            return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": problem}}
        self.requests.append(request)
        turn = self.script[len(self.requests) - 1]
        blocks = turn(request) if callable(turn) else turn
        number = len(self.requests)
        content = [
            {**block, "id": f"toolu_{number}_{index}"} if block["type"] == "tool_use" else block
            for index, block in enumerate(blocks)
        ]
        return 200, {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": content,
            "stop_reason": "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": len(json.dumps(request)) // 4, "output_tokens": len(json.dumps(content)) // 4},
        }

    def _problem(self, request: Request, headers: dict[str, str]) -> str:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if key != KEY or not headers.get("anthropic-version"):
            return "no key, or no version"
        used: set[str] = set()
        for message in request["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else []
            if used != {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}:
                return f"each of {used} needs a result in the next message"
            used = {block["id"] for block in blocks if block["type"] == "tool_use"}
        return "the last message uses tools" if used else ""

    @contextmanager
    def serving(self) -> Iterator["MessagesApi"]:
        """Serve at a port of loopback."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                known = self.path.partition("?")[0] == "/v1/messages"
                status, found = (
                    api.answer(body, {k.lower(): v for k, v in self.headers.items()}) if known else (404, {})
                )
                text = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Log nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join(10)
            server.server_close()
