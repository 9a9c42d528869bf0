"""`mcp-exec doctor`: checks whether an installation works and says what to do if it does not.

With a gateway's address and an API key it checks that the gateway is ready and accepts the key, which tools there are,
and that `print(1)` runs. With a kubeconfig file it checks that operator, gateway and broker run, that the namespace's
pools are ready and its ToolServers available, and that the version of Kubernetes is a supported one. It prints one line
per check: ok, problem (with a hint), warning or skipped. It exits with 1 if it found a problem.

With --bundle it also writes what it found, and versions, logs, Events and objects of the release and the namespace, to
an archive for whoever is asked for help. The archive has no Secrets, and no code or output of executions.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_exec_client.cli.connection import KUBECTL, Connection, find_kubeconfig, resolve_gateway
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import (
    Subcommands,
    add_command,
    add_gateway_options,
    add_kubeconfig_options,
    add_number,
    add_repeated,
    run_interruptible,
    set_completer,
)

if TYPE_CHECKING:
    from mcp_exec_client.cli.backends.bundle import Bundle
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
    bundle = command.add_argument(
        "--bundle",
        metavar="FILE",
        type=Path,
        help="write report, logs, Events and objects to this new .tar.gz file",
    )
    set_completer(bundle, "file")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command. Raises CommandError if it found a problem."""
    from mcp_exec_client.cli.backends.checks import CheckReport

    cluster, gateway = _resolve(options)
    if options.tool and not gateway.gateway:
        raise CommandError("--tool needs --gateway: the gateway lists the tools", ExitCode.USAGE)
    if options.bundle and cluster is None:
        raise CommandError("--bundle needs --kubeconfig: the API server has the logs and Events", ExitCode.USAGE)
    report = CheckReport()
    bundle = _open_bundle(options.bundle)
    run_interruptible(_check(options, cluster, gateway, report, bundle))
    if bundle is not None:
        bundle.files["report.txt"] = "".join(f"{line}\n" for line in report.lines)
        _write_bundle(bundle, options.bundle, report)
    if report.problems:
        raise CommandError("1 problem" if report.problems == 1 else f"{report.problems} problems")


def _open_bundle(path: Path | None) -> "Bundle | None":
    """Return an empty bundle if one is wanted. Raises CommandError if its file exists, before the checks begin."""
    if path is None:
        return None
    if path.exists():
        raise CommandError(f"--bundle {path} exists: name a new file", ExitCode.USAGE)
    from mcp_exec_client.cli.backends.bundle import Bundle

    return Bundle()


def _write_bundle(bundle: "Bundle", path: Path, report: "CheckReport") -> None:
    try:
        count = bundle.write(path)
    except OSError as error:
        raise CommandError(f"--bundle {path}: {error.strerror}") from error
    report.ok("bundle", f"{path} has {count} files without Secrets, code or output; read them before you share them")


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
    options: argparse.Namespace,
    cluster: Connection | None,
    gateway: Connection,
    report: "CheckReport",
    bundle: "Bundle | None",
) -> None:
    from mcp_exec_client.cli.backends.checks import GatewayChecks

    has_operator = True
    if cluster is not None:
        from mcp_exec_client.cli.backends.cluster_checks import ClusterChecks

        state = await ClusterChecks(
            kubeconfig=cluster.kubeconfig,
            context=cluster.kube_context,
            namespace=cluster.namespace,
            report=report,
            bundle=bundle,
        ).run()
        has_operator = "operator" not in state.stopped
    else:
        report.skipped("release, pools and toolservers", "checking them needs --kubeconfig")
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
        has_operator=has_operator,
    ).run()
