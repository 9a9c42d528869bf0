"""`mcp-exec doctor`: looks whether an installation works, and says what to do where it does not.

By a gateway's address and an API key: is it there and ready, does it take the key, what tools are there, does
`print(1)` run. By a kubeconfig file: are the namespace's pools ready and its ToolServers available. One line each: ok,
problem (with a hint), or skipped. Ends with 1 where there was a problem.
"""

import argparse
import asyncio
import os
from pathlib import Path
from typing import Final

from mcp_exec_client.check_report import Report
from mcp_exec_client.cluster_checks import ClusterExam
from mcp_exec_client.gateway_checks import GatewayExam
from mcp_exec_client.problems import Problem

_NAMESPACE: Final = "agents"


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command and its options."""
    command = commands.add_parser(
        "doctor",
        help="look whether an installation works",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("--gateway", metavar="URL", help="default: $MCP_EXEC_GATEWAY")
    command.add_argument("--api-key", metavar="KEY", help="default: $MCP_EXEC_API_KEY")
    command.add_argument("--kubeconfig", metavar="FILE", type=Path, help="no file is read that is not named here")
    command.add_argument(
        "--namespace", metavar="NAME", help=f"default: the key's own, and {_NAMESPACE} with --kubeconfig"
    )
    command.add_argument("--pool", metavar="NAME", default="default", help="of the trial run; default: default")
    command.add_argument(
        "--tool", metavar="SERVER.TOOL", action="append", default=[], help="a tool's name, to see whether it is one"
    )
    command.add_argument(
        "--timeout", metavar="SECONDS", type=_seconds, default=30.0, help="of the trial run; default: 30"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Does what the options say. Raises Problem where one was found."""
    gateway = options.gateway or os.environ.get("MCP_EXEC_GATEWAY")
    if not gateway and options.kubeconfig is None:
        raise Problem("doctor needs --gateway (or $MCP_EXEC_GATEWAY), --kubeconfig, or both")
    if gateway and not gateway.startswith(("http://", "https://")):
        raise Problem(f"{gateway} is no address of a gateway: http:// or https:// is wanted")
    if options.tool and not gateway:
        raise Problem("--tool needs --gateway: it tells what tools there are")
    report = Report()
    asyncio.run(_examine(options, gateway, report))
    if report.problems:
        raise Problem("1 problem" if report.problems == 1 else f"{report.problems} problems")


async def _examine(options: argparse.Namespace, gateway: str | None, report: Report) -> None:
    if options.kubeconfig is not None:
        namespace = options.namespace or _NAMESPACE
        await ClusterExam(kubeconfig=options.kubeconfig, namespace=namespace, report=report).run()
    else:
        report.skipped("pools and toolservers", "they are looked at with --kubeconfig")
    if not gateway:
        report.skipped("gateway", "it is looked at with --gateway")
        return
    await GatewayExam(
        url=gateway.rstrip("/"),
        key=options.api_key or os.environ.get("MCP_EXEC_API_KEY"),
        namespace=options.namespace,
        pool=options.pool,
        tools=options.tool,
        seconds=options.timeout,
        report=report,
    ).run()


def _seconds(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 300:
        raise argparse.ArgumentTypeError("between 1 and 300")
    return value
