"""Where catalogs come from: files, live servers, and the catalog that a gateway knows."""

import asyncio
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from yarl import URL

from mcp_exec_client.problems import Problem
from mcp_exec_tools.catalog import Catalog

_PAGES: Final = 100
_TOOLS: Final = 5000
_FILE_BYTES: Final = 32 * 1024 * 1024


def from_file(path: Path, name: str | None = None) -> Catalog:
    """From a file: an answer to `tools/list`, or `{"server": NAME, "tools": [...]}`; else the file's name counts."""
    try:
        if path.stat().st_size > _FILE_BYTES:
            raise Problem(f"{path} is larger than {_FILE_BYTES} bytes")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise Problem(f"{path} is no JSON: {error}") from error
    if isinstance(data, dict) and isinstance(data.get("result"), dict):
        data = data["result"]
    tools = data.get("tools") if isinstance(data, dict) else data
    if not isinstance(tools, list):
        raise Problem(f'{path} has no list of tools: {{"tools": [...]}} is wanted, as `tools/list` answers')
    server = data.get("server") if isinstance(data, dict) else None
    return _catalog(name or (server if isinstance(server, str) and server else path.stem), tools)


async def from_url(url: str, name: str, *, headers: Mapping[str, str], seconds: float) -> Catalog:
    """From a live server by streamable HTTP."""
    if not url.startswith(("http://", "https://")):
        raise Problem(f"{url} is no address of an MCP server: http:// or https:// is wanted")
    async with httpx2.AsyncClient(headers=dict(headers), timeout=seconds, follow_redirects=False) as http:
        return await _live(Client(streamable_http_client(url, http_client=http)), url, name, seconds)


async def from_command(command: str, name: str, *, environment: Mapping[str, str], seconds: float) -> Catalog:
    """From a server that is started here and speaks on its standard streams."""
    try:
        program, *arguments = shlex.split(command)
    except ValueError as error:
        raise Problem(f"no command can be read from {command!r}: {error}") from error
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(environment) or None)
    return await _live(Client(parameters), command, name, seconds)


async def from_gateway(gateway: str, server: str, *, key: str | None, seconds: float) -> Catalog:
    """From what a gateway tells of a ToolServer."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    address = f"{gateway.rstrip('/')}/api/v1/mcp/servers/{quote(server, safe='')}/tools"
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=seconds)) as session,
            session.get(URL(address, encoded=True)) as response,
        ):
            if response.status != 200:
                text = (await response.text(errors="replace"))[:500]
                raise Problem(f"{address} answers {response.status}: {text}")
            data = await response.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise Problem(f"{address}: {error or 'no answer in time'}") from error
    tools = data.get("tools") if isinstance(data, dict) else None
    if not isinstance(tools, list):
        raise Problem(f"{address} answers with no list of tools")
    return _catalog(server, tools)


async def _live(client: Client, address: str, name: str, seconds: float) -> Catalog:
    try:
        async with asyncio.timeout(seconds), client:
            return _catalog(name, await _listed(client, address))
    except TimeoutError as error:
        raise Problem(f"{address} did not list its tools within {seconds:g} s") from error
    except (MCPError, OSError, httpx2.HTTPError, RuntimeError, ValueError) as error:
        raise Problem(f"{address}: {error}") from error
    except ExceptionGroup as group:
        raise Problem(f"{address}: {_first(group)}") from group


async def _listed(client: Client, address: str) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        cursor = page.next_cursor
        if len(tools) > _TOOLS:
            break
        if not cursor:
            return tools
    raise Problem(f"{address} lists more than {_PAGES} pages or {_TOOLS} tools")


def _catalog(server: str, tools: list[Any]) -> Catalog:
    try:
        return Catalog.of(server, tools)
    except ValueError as error:
        raise Problem(str(error)) from error


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
