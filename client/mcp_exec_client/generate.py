"""`mcp-exec servers generate`: writes typed wrappers of MCP servers into a folder.

One package a server, one file a tool: `servers/github/create_issue.py`. Where the tools come from is one of
--from-file, --from-url, --from-command and --from-toolserver. Generated files of tools that are gone are removed;
files without the header of generated ones are left alone.
"""

import argparse
import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mcp_exec_client import catalog_sources as sources
from mcp_exec_client import file_tree as trees
from mcp_exec_client.problems import Problem
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.wrappers import HEADER, files_of

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_INIT: Final = f'{HEADER}\n"""MCP servers: one package each, with one function a tool."""\n'


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command and its options."""
    command = commands.add_parser(
        "generate",
        help="write typed wrappers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--from-file", metavar="CATALOG", type=Path, nargs="+", help="what `tools/list` answered, JSON")
    source.add_argument("--from-url", metavar="URL", help="a live server, by streamable HTTP")
    source.add_argument("--from-command", metavar="COMMAND", help="a server to start, such as 'npx -y some-server'")
    source.add_argument("--from-toolserver", metavar="NAME", help="a ToolServer, by way of a gateway")
    command.add_argument(
        "--name", help="what code calls the server (default: the name in the file, or made of the address)"
    )
    command.add_argument("--out", metavar="DIR", type=Path, default=Path("servers"), help="default: servers")
    command.add_argument("--stubs", action=argparse.BooleanOptionalAction, default=True, help="write .pyi files too")
    command.add_argument("--check", action="store_true", help="write nothing, end with 1 where a file would change")
    command.add_argument(
        "--header-env",
        metavar="NAME=VARIABLE",
        action="append",
        default=[],
        help="with --from-url: a header whose value is in this variable of the environment",
    )
    command.add_argument(
        "--env",
        metavar="VARIABLE",
        action="append",
        default=[],
        help="with --from-command: a variable of the environment that the server is given",
    )
    command.add_argument("--gateway", metavar="URL", help="with --from-toolserver (default: $MCP_EXEC_GATEWAY)")
    command.add_argument("--api-key", metavar="KEY", help="with --from-toolserver (default: $MCP_EXEC_API_KEY)")
    command.add_argument("--timeout", metavar="SECONDS", type=_seconds, default=60.0, help="default: 60")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Does what the options say. Raises Problem."""
    _fits(options)
    catalogs = asyncio.run(_catalogs(options))
    if wrong := [catalog.server for catalog in catalogs if not _NAME.fullmatch(catalog.server)]:
        raise Problem(f"{wrong[0]!r} is no name of a server: give one of letters, digits, - and _ with --name")
    if len({catalog.server for catalog in catalogs}) < len(catalogs):
        raise Problem("two catalogs are of one server")
    files = {"__init__.py": _INIT} | files_of(catalogs, stubs=options.stubs)
    try:
        wanted = trees.changes(options.out, files)
        if not options.check:
            trees.apply(options.out, wanted)
    except (OSError, ValueError) as error:
        raise Problem(str(error)) from error
    if wanted and options.check:
        raise Problem(f"{options.out} differs from what would be generated: {', '.join(list(wanted)[:10])}")
    tools = sum(len(catalog.tools) for catalog in catalogs)
    print(f"{options.out}: {tools} tools of {len(catalogs)} servers, {len(wanted)} files changed")  # noqa: T201


async def _catalogs(options: argparse.Namespace) -> list[Catalog]:
    if options.from_file:
        return [sources.from_file(path, options.name) for path in options.from_file]
    if options.from_url:
        name = options.name or _host(options.from_url)
        headers = dict(_header(text) for text in options.header_env)
        return [await sources.from_url(options.from_url, name, headers=headers, seconds=options.timeout)]
    if options.from_command:
        environment = {name: _variable(name) for name in options.env}
        found = await sources.from_command(
            options.from_command, options.name, environment=environment, seconds=options.timeout
        )
        return [found]
    gateway = options.gateway or os.environ.get("MCP_EXEC_GATEWAY")
    if not gateway:
        raise Problem("--from-toolserver needs --gateway or $MCP_EXEC_GATEWAY")
    key = options.api_key or os.environ.get("MCP_EXEC_API_KEY")
    found = await sources.from_gateway(gateway, options.from_toolserver, key=key, seconds=options.timeout)
    return [found]


def _fits(options: argparse.Namespace) -> None:
    """Refuses options that the source has no use for."""
    for option, given, source in (
        ("--header-env", options.header_env, options.from_url),
        ("--env", options.env, options.from_command),
        ("--gateway", options.gateway, options.from_toolserver),
        ("--api-key", options.api_key, options.from_toolserver),
    ):
        if given and not source:
            raise Problem(f"{option} goes with another source")
    if options.name and options.from_file and len(options.from_file) > 1:
        raise Problem("--name goes with one file")
    if options.name and options.from_toolserver:
        raise Problem("--name does not go with --from-toolserver: code calls a ToolServer by its own name")
    if options.from_command and not options.name:
        raise Problem("--from-command needs --name: a server's own name is not told from another's")


def _header(text: str) -> tuple[str, str]:
    name, mark, variable = text.partition("=")
    if not (name and mark and variable):
        raise Problem(f"--header-env {text}: NAME=VARIABLE is wanted, such as Authorization=GITHUB_AUTHORIZATION")
    return name, _variable(variable)


def _variable(name: str) -> str:
    if name not in os.environ:
        raise Problem(f"the environment has no variable {name}")
    return os.environ[name]


def _host(url: str) -> str:
    """A name made of an address: `mcp` and what ends it say nothing."""
    labels: Sequence[str] = [each for each in (urlsplit(url).hostname or "").split(".") if each not in ("mcp", "www")]
    if not labels or not _NAME.fullmatch(labels[0]) or labels[0].isdecimal():
        raise Problem("--name is needed: the address has none that would do")
    return labels[0]


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError("between 0 and 3600")
    return value
