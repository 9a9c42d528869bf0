"""Sources of catalogs: files, live MCP servers, and gateways."""

import asyncio
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from mcp_exec_client.cli.exit_codes import CommandError
from mcp_exec_client.cli.output import print_note
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import McpExecError
from mcp_exec_client.network import describe_failure, direct_transport, find_proxy
from mcp_exec_client.state.channel import quote_segment
from mcp_exec_client.transport import NO_RETRIES
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.paging import Pages

_MAX_TOOLS: Final = 5000
_MAX_FILE_BYTES: Final = 32 * 1024 * 1024


def read_file(path: Path, name: str | None = None) -> Catalog:
    """Read a catalog from a result of `tools/list`, or from `{"server": NAME, "tools": [...]}`.

    The server is called `name`, else as the file's content says, else like the file. Raises CommandError.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise CommandError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is not valid JSON: {error}") from error
    if isinstance(data, dict) and isinstance(data.get("result"), dict):
        data = data["result"]
    tools = data.get("tools") if isinstance(data, dict) else data
    if not isinstance(tools, list):
        raise CommandError(f'{path} has no list of tools: it must be {{"tools": [...]}}, as returned by `tools/list`')
    server = data.get("server") if isinstance(data, dict) else None
    return _build_catalog(name or (server if isinstance(server, str) and server else path.stem), tools)


async def fetch_from_url(url: str, name: str, *, headers: Mapping[str, str], seconds: float) -> Catalog:
    """Fetch the catalog of a live server by streamable HTTP. Raises CommandError."""
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"{url} is not the address of an MCP server: it must begin with http:// or https://")
    transport = direct_transport(url, httpx2.AsyncHTTPTransport)
    async with httpx2.AsyncClient(
        headers=dict(headers), timeout=seconds, follow_redirects=False, transport=transport
    ) as http:
        return await _fetch_live(Client(streamable_http_client(url, http_client=http)), url, name, seconds)


async def fetch_from_command(command: str, name: str, *, environment: Mapping[str, str], seconds: float) -> Catalog:
    """Start a stdio server and fetch its catalog. Raises CommandError."""
    try:
        program, *arguments = shlex.split(command)
    except ValueError as error:
        raise CommandError(f"{command!r} is not a valid command: {error}") from error
    parameters = StdioServerParameters(command=program, args=arguments, env=dict(environment) or None)
    return await _fetch_live(Client(parameters), command, name, seconds)


async def fetch_from_gateway(gateway: str, server: str, *, key: str | None, seconds: float) -> Catalog:
    """Fetch the catalog of a ToolServer from a gateway. Raises CommandError."""
    try:
        path = f"/api/v1/mcp/servers/{quote_segment(server)}/tools"
        async with AsyncClient(gateway, api_key=key, timeout_seconds=seconds, retries=NO_RETRIES) as client:
            # as it was sent: a schema may have null, which typed results could drop
            data = (await client.transport.request("GET", path)).to_json()
    except McpExecError as error:
        raise CommandError(str(error)) from error
    tools = data.get("tools") if isinstance(data, dict) else None
    if not isinstance(tools, list):
        raise CommandError(f"{gateway}{path} returned no list of tools")
    return _build_catalog(server, tools)


async def _fetch_live(client: Client, address: str, name: str, seconds: float) -> Catalog:
    try:
        async with asyncio.timeout(seconds), client:
            return _build_catalog(name, await _list_tools(client, address))
    except TimeoutError as error:
        raise CommandError(f"{address} did not list its tools within {seconds:g} s") from error
    except (MCPError, OSError, httpx2.HTTPError, RuntimeError, ValueError) as error:
        raise CommandError(f"{address}: {describe_failure(error)}{_name_proxy(address)}") from error
    except ExceptionGroup as group:
        failure = describe_failure(_first_error(group))
        raise CommandError(f"{address}: {failure}{_name_proxy(address)}") from group


async def _list_tools(client: Client, address: str) -> list[dict[str, Any]]:
    """Return the tools of all pages. Print to standard error why pages are missing."""
    tools: dict[str, dict[str, Any]] = {}
    pages, goes_on = Pages(), True
    while goes_on:
        try:
            page = await client.list_tools(cursor=pages.cursor)
        except MCPError:
            if pages.cursor == "":
                break  # it was the end of the listing
            raise
        listed = {tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools}
        fresh = {name: tool for name, tool in listed.items() if tools.get(name) != tool}
        tools = fresh | tools
        if len(tools) > _MAX_TOOLS:
            raise CommandError(f"{address} lists more than {_MAX_TOOLS} tools")
        goes_on = pages.advance(page.next_cursor, brings_news=bool(fresh) or not listed)
    if pages.problem:
        print_note(f"{address} {pages.problem}; {len(tools)} tools are read")
    return list(tools.values())


def _build_catalog(server: str, tools: list[Any]) -> Catalog:
    try:
        return Catalog.from_tools(server, tools)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _name_proxy(address: str) -> str:
    """Return words about the proxy on the way to a server; empty for a command and without a proxy."""
    proxy = find_proxy(address) if address.startswith(("http://", "https://")) else None
    return f" (through the proxy {proxy})" if proxy else ""


def _first_error(error: BaseException) -> BaseException:
    return _first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
