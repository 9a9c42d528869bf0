"""`mcp-exec doctor`: checks whether an installation works and says what to do if it does not.

With a gateway's address and an API key it checks that the gateway is ready and accepts the key, which tools there are,
and that `print(1)` runs. With a kubeconfig file it checks that the namespace's pools are ready and its ToolServers
available, and that the version of Kubernetes is a supported one. It prints one line per check: ok, problem (with a
hint), warning or skipped. It exits with 1 if it found a problem.
"""

import argparse
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.connection import KUBECTL, Connection, find_kubeconfig, resolve_gateway
from mcp_exec_client.cli.options import (
    CommandError,
    ExitCode,
    Subcommands,
    add_command,
    add_gateway_options,
    add_kubeconfig_options,
    add_number,
    add_repeated,
    run_interruptible,
)

if TYPE_CHECKING:
    from mcp_exec_client.cli.backends.checks import CheckReport


_NAMESPACE: Final = "agents"


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "doctor", summary="check whether an installation works", description=__doc__)
    add_gateway_options(command)
    add_kubeconfig_options(command)
    command.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help=f"default: the key's own, with --kubeconfig {_NAMESPACE}, as a plugin of kubectl the context's",
    )
    command.add_argument("--pool", metavar="NAME", default="default", help="pool of the trial run; default: default")
    add_repeated(command, "--tool", metavar="SERVER.TOOL", help="tool name to check")
    add_number(command, "--timeout", 1, 300, metavar="SECONDS", default=30.0, help="time limit of the trial run")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError if it found a problem."""
    from mcp_exec_client.cli.backends.checks import CheckReport

    cluster, gateway = _resolve(options)
    if options.tool and not gateway.gateway:
        raise CommandError("--tool needs --gateway: the gateway lists the tools", ExitCode.USAGE)
    report = CheckReport()
    run_interruptible(_check(options, cluster, gateway, report))
    if report.problems:
        raise CommandError("1 problem" if report.problems == 1 else f"{report.problems} problems")


def _resolve(options: argparse.Namespace) -> tuple[Connection | None, Connection]:
    """Return the API server and the gateway to check. Raises CommandError if there is neither."""
    if options.program == KUBECTL:
        cluster = Connection(
            kubeconfig=options.kubeconfig or find_kubeconfig(),
            kube_context=options.kube_context,
            namespace=options.namespace,
        )
        uses_gateway = options.gateway or options.profile
        return cluster, resolve_gateway(options, namespace=options.namespace) if uses_gateway else Connection()
    if options.kube_context and options.kubeconfig is None:
        raise CommandError("--kube-context needs --kubeconfig", ExitCode.USAGE)
    gateway = resolve_gateway(options, namespace=options.namespace)
    if options.kubeconfig is None:
        if not gateway.gateway:
            raise CommandError(
                "doctor needs --gateway (or $MCP_EXEC_GATEWAY, or a profile), --kubeconfig, or both", ExitCode.USAGE
            )
        return None, gateway
    namespace = options.namespace or _NAMESPACE
    return Connection(kubeconfig=options.kubeconfig, kube_context=options.kube_context, namespace=namespace), gateway


async def _check(
    options: argparse.Namespace, cluster: Connection | None, gateway: Connection, report: "CheckReport"
) -> None:
    from mcp_exec_client.cli.backends.checks import GatewayChecks

    if cluster is not None:
        from mcp_exec_client.cli.backends.cluster_checks import ClusterChecks

        await ClusterChecks(
            kubeconfig=cluster.kubeconfig, context=cluster.kube_context, namespace=cluster.namespace, report=report
        ).run()
    else:
        report.skipped("pools and toolservers", "checking them needs --kubeconfig")
    if not gateway.gateway:
        report.skipped("gateway", "checking it needs --gateway")
        return
    await GatewayChecks(
        url=gateway.gateway.rstrip("/"),
        key=gateway.api_key,
        namespace=gateway.namespace,
        pool=options.pool,
        tools=options.tool,
        seconds=options.timeout,
        report=report,
    ).run()
