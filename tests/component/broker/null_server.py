"""Stdio MCP server of the older protocol that sends null next to its text, as some do that fill in all fields."""

import json
import sys
from typing import Any


def answer(method: str) -> dict[str, Any]:
    """Return the answer to a method; the protocol of 2026 is unsupported."""
    match method:
        case "initialize":
            info = {"name": "nulls", "version": "1"}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
        case "tools/list":
            return {"result": {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}}
        case "tools/call":
            return {"result": {"content": [{"type": "text", "text": "said"}], "structuredContent": None}}
    return {"error": {"code": -32601, "message": f"there is no {method}"}}


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message["method"])}), flush=True)
