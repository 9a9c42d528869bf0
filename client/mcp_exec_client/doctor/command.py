"""`mcp-exec doctor`: checks whether an installation works and says what to do if it does not.

With a gateway's address and an API key it checks that the gateway is ready and accepts the key, which tools there are,
and that `print(1)` runs. With a kubeconfig file it checks that the namespace's pools are ready and its ToolServers
available. It prints one line per check: ok, problem (with a hint) or skipped. It exits with 1 if it found a problem.
"""

import argparse
import asyncio
from pathlib import Path
from typing import Final

from mcp_exec_client.cli import (
    CommandError,
    Subcommands,
    add_command,
    add_gateway_options,
    read_api_key,
    read_gateway,
    seconds_between,
)
from mcp_exec_client.doctor.cluster_checks import ClusterChecks
from mcp_exec_client.doctor.gateway_checks import GatewayChecks
from mcp_exec_client.doctor.report import CheckReport

_NAMESPACE: Final = "agents"


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "doctor", summary="check whether an installation works", description=__doc__)
    add_gateway_options(command)
    command.add_argument("--kubeconfig", metavar="FILE", type=Path, help="kubeconfig file; no other file is read")
    command.add_argument(
        "--namespace", metavar="NAME", help=f"default: the key's own, or {_NAMESPACE} with --kubeconfig"
    )
    command.add_argument("--pool", metavar="NAME", default="default", help="pool of the trial run; default: default")
    command.add_argument(
        "--tool", metavar="SERVER.TOOL", action="append", default=[], help="tool name to check; may be repeated"
    )
    command.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds_between(1, 300),
        default=30.0,
        help="time limit of the trial run; default: 30",
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError if it found a problem."""
    gateway = read_gateway(options)
    if not gateway and options.kubeconfig is None:
        raise CommandError("doctor needs --gateway (or $MCP_EXEC_GATEWAY), --kubeconfig, or both")
    if gateway and not gateway.startswith(("http://", "https://")):
        raise CommandError(f"{gateway} is not the address of a gateway: it must begin with http:// or https://")
    if options.tool and not gateway:
        raise CommandError("--tool needs --gateway: the gateway lists the tools")
    report = CheckReport()
    asyncio.run(_check(options, gateway, report))
    if report.problems:
        raise CommandError("1 problem" if report.problems == 1 else f"{report.problems} problems")


async def _check(options: argparse.Namespace, gateway: str | None, report: CheckReport) -> None:
    if options.kubeconfig is not None:
        namespace = options.namespace or _NAMESPACE
        await ClusterChecks(kubeconfig=options.kubeconfig, namespace=namespace, report=report).run()
    else:
        report.skipped("pools and toolservers", "checking them needs --kubeconfig")
    if not gateway:
        report.skipped("gateway", "checking it needs --gateway")
        return
    await GatewayChecks(
        url=gateway.rstrip("/"),
        key=read_api_key(options),
        namespace=options.namespace,
        pool=options.pool,
        tools=options.tool,
        seconds=options.timeout,
        report=report,
    ).run()
