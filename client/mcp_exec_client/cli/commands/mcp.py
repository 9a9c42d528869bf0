"""`mcp-exec mcp`: an MCP server on stdio that passes everything to the gateway's endpoint /mcp.

For clients that start their servers as programs, such as Claude Desktop. Standard output carries messages only; notes
go to standard error. docs/agents/mcp.md shows the settings of common clients.
"""

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mcp_exec_api.wire.execution_options import EXECUTION_OPTIONS
from mcp_exec_client.cli.connection import Connection, resolve_gateway
from mcp_exec_client.cli.execution_options import add_named, add_option
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import Subcommands, add_command, add_gateway_options, run_interruptible
from mcp_exec_client.cli.output import print_note

if TYPE_CHECKING:
    from mcp_exec_client.transport import Transport

_START_ATTEMPTS: Final = 8
_START_SECONDS: Final = 10.0
"""Time for the first connection. A wrong address is to be found before a client gives up."""


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "mcp", summary="serve the gateway's tools to an MCP client", description=__doc__)
    add_gateway_options(command)
    command.add_argument("-n", "--namespace", metavar="NAME", help="namespace of executions; default: the key's own")
    command.add_argument("--mode", metavar="MODE", help="tools that the client sees; default: code")
    add_option(command, replace(EXECUTION_OPTIONS["tools"], default="all that the key may use"))
    add_named(command, "pool", "user", "conversation")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command until standard input ends. Raises CommandError."""
    connection = resolve_gateway(options, namespace=options.namespace)
    connection.require_gateway("mcp")
    if not connection.api_key:
        raise CommandError("mcp needs --api-key, $MCP_EXEC_API_KEY or a profile", ExitCode.USAGE)
    run_interruptible(_run_bridge(options, connection))


async def _run_bridge(options: argparse.Namespace, connection: Connection) -> None:
    from mcp_exec_client.errors import ClientMisconfigured
    from mcp_exec_client.mcp_bridge.bridge import LineTooLong, LineWriter, StdioBridge, read_lines
    from mcp_exec_client.mcp_bridge.endpoint import McpEndpoint
    from mcp_exec_client.transport import build_transport

    try:
        transport = build_transport(connection.gateway, {"api_key": connection.api_key})
    except ClientMisconfigured as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    query = {
        "mode": options.mode,
        "namespace": connection.namespace,
        "pool": options.pool,
        "tools": ",".join(options.tools) or None,
        "user": options.user,
        "conversation": options.conversation,
    }
    async with transport.http:
        await _check_address(transport)
        transport.has_answered = True
        bridge = StdioBridge(
            McpEndpoint(transport=transport, query=query),
            LineWriter(sys.stdout.buffer).write,
            lambda text: print_note(f"mcp-exec mcp: {text}"),
        )
        try:
            await bridge.run(read_lines(sys.stdin.buffer))
        except LineTooLong as error:
            raise CommandError(str(error)) from error


async def _check_address(transport: "Transport") -> None:
    """Return once something accepts connections at the address. Raises CommandError if nothing does in time."""
    import asyncio

    from mcp_exec_client.errors import GatewayUnreachable, McpExecError
    from mcp_exec_client.transport import RetryPolicy, can_retry

    retries = RetryPolicy(attempts=_START_ATTEMPTS, max_delay_seconds=_START_SECONDS, last_delay_seconds=2.0)
    first = replace(transport, retries=retries)
    try:
        async with asyncio.timeout(_START_SECONDS):
            await first.request("GET", "/healthz", repeatable=False)
    except TimeoutError:
        message = f"{transport.url} accepts no connection within {_START_SECONDS:g} s; check --gateway"
        raise CommandError(message, ExitCode.UNAVAILABLE) from None
    except GatewayUnreachable as error:
        if can_retry(error, repeatable=False):  # no connection was made
            raise CommandError(f"{error}; check --gateway", ExitCode.UNAVAILABLE) from error
    except McpExecError:
        return  # something answers: the client receives its errors
