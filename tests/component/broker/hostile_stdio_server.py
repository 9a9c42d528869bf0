"""Stdio MCP server whose tools break the protocol: lines that are too large or have no end, half an answer."""

import json
import os
import sys
from typing import Any, NoReturn

MEBIBYTE = "x" * 1024 * 1024
PROGRESS = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 9, "progress": 1}}
NAMES = ("fine", "giant", "dense", "endless", "flood", "exits")


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def answer(request: dict[str, Any], result: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n"


def call(request: dict[str, Any]) -> None:
    name = request["params"]["name"]
    if name == "giant":
        write(answer(request, {"content": [{"type": "text", "text": MEBIBYTE * 4}]}))
    elif name == "dense":
        write(
            answer(request, {"content": [], "structuredContent": {"a": 0}}).replace("0}", f"[{'[],' * 2_700_000}0]}}")
        )
    elif name == "endless":
        repeat(MEBIBYTE)
    elif name == "flood":
        repeat(json.dumps(PROGRESS) + "\n")
    elif name == "exits":
        write(answer(request, {"content": []})[:20])
        os._exit(3)
    else:
        write(answer(request, {"content": [{"type": "text", "text": "fine"}]}))


def repeat(text: str) -> NoReturn:
    while True:
        write(text)


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        if method == "initialize":
            info = {"name": "hostile", "version": "1"}
            version = request["params"]["protocolVersion"]
            write(answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}))
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
            write(answer(request, {"tools": tools}))
        elif method == "tools/call":
            call(request)
        elif "id" in request:
            error = {"code": -32601, "message": "unknown method"}
            write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}) + "\n")


if __name__ == "__main__":
    main()
