"""MCP server that forwards calls to an application by HTTP, run as `python3 -c SERVER SETTINGS`.

SETTINGS is JSON: `server` (its name), `url` and `tools` (entries of `tools/list`). Each call is a POST of the arguments
as JSON to URL/TOOL. The application answers with JSON or text. With $APPLICATION_TOKEN, each request has it as a bearer
token.
"""

import asyncio
import json
import os
import sys
from typing import Any
from urllib.parse import quote

import httpx2
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

MAX_ANSWER_BYTES = 4 * 1024 * 1024
SECONDS = 300.0
"""Limit of a call. A ToolServer's own limit is at most this."""


def build_server(settings: dict[str, Any], http: httpx2.AsyncClient) -> Server[Any]:
    """Return a server with the tools of the settings. It forwards each call to the application at their URL."""
    tools = {entry["name"]: Tool.model_validate(entry) for entry in settings["tools"]}

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=list(tools.values()))

    async def call_tool(_: ServerRequestContext[Any], call: CallToolRequestParams) -> CallToolResult:
        tool = tools.get(call.name)
        if tool is None:
            return _answer(f"there is no tool {call.name}", failed=True)
        try:
            return await _forward(http, f"{settings['url']}/{quote(call.name, safe='')}", call.arguments or {}, tool)
        except (httpx2.HTTPError, TimeoutError, ValueError, RecursionError) as error:
            return _answer(f"the application did not answer: {type(error).__name__}: {error}", failed=True)

    return Server(settings["server"], on_list_tools=list_tools, on_call_tool=call_tool)


async def _forward(http: httpx2.AsyncClient, address: str, arguments: dict[str, Any], tool: Tool) -> CallToolResult:
    async with asyncio.timeout(SECONDS), http.stream("POST", address, json=arguments) as response:
        content = bytearray()
        async for part in response.aiter_raw(65536):  # a compressed answer could grow beyond all bounds
            content += part
            if len(content) > MAX_ANSWER_BYTES:
                raise ValueError(f"its answer is larger than {MAX_ANSWER_BYTES} bytes")
    text = content.decode(errors="replace")
    if not 200 <= response.status_code < 300:
        return _answer(f"the application answered with status {response.status_code}: {text[:1000]}", failed=True)
    if "json" not in response.headers.get("content-type", ""):
        return _answer(text)
    value = json.loads(text)
    if not isinstance(value, dict) and list((tool.output_schema or {}).get("properties", {})) == ["result"]:
        value = {"result": value}  # as the SDK's servers declare results that are not objects
    return _answer(text, value if isinstance(value, dict) else None)


def _answer(text: str, value: dict[str, Any] | None = None, *, failed: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], structured_content=value, is_error=failed)


async def serve(settings: dict[str, Any]) -> None:
    """Serve standard input and output until it ends."""
    token = os.environ.get("APPLICATION_TOKEN")
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token else {})
    async with httpx2.AsyncClient(headers=headers, timeout=SECONDS, follow_redirects=False) as http:
        server = build_server(settings, http)
        async with stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
