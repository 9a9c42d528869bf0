"""Stdio MCP server whose only tool answers with the text of its first argument, with `ID` for the id of the request."""

import json
import sys
from typing import Any


def answer(request: dict[str, Any]) -> str:
    head = {"jsonrpc": "2.0", "id": request["id"]}
    match request["method"]:
        case "tools/call":
            return sys.argv[1].replace("ID", json.dumps(request["id"]))
        case "initialize":
            version, info = request["params"]["protocolVersion"], {"name": "unreadable", "version": "1"}
            result: Any = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}
        case _:
            return json.dumps({**head, "error": {"code": -32601, "message": "unknown method"}})
    return json.dumps({**head, "result": result})


if __name__ == "__main__":
    for line in sys.stdin:
        if "id" in (message := json.loads(line)):
            sys.stdout.buffer.write(answer(message).encode("utf-8", "surrogateescape") + b"\n")
            sys.stdout.flush()
