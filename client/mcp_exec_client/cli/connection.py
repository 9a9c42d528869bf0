"""Which gateway or API server a command uses: by its options, the environment and the profile, in this order.

`mcp-exec` uses a gateway, and an API server only by --kubeconfig. As a plugin of kubectl it uses kubectl's API server,
and a gateway only by --gateway or --profile.
"""

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.profiles import Profile, default_path, read_profiles

if TYPE_CHECKING:
    from mcp_exec_client.cli.backends.cluster import ClusterBackend
    from mcp_exec_client.cli.backends.gateway import GatewayBackend
    from mcp_exec_client.client import AsyncClient

    Backend: TypeAlias = GatewayBackend | ClusterBackend
    """Executions and other objects of one namespace, as JSON objects in the form of the gateway's responses.

    Both have the same methods, which raise CommandError.
    """

KUBECTL = "kubectl mcp-exec"
"""Name of the program as a plugin of kubectl."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Settings of a connection. What is None is not set."""

    gateway: str | None = None
    api_key: str | None = field(default=None, repr=False)
    namespace: str | None = None
    kubeconfig: Path | None = None
    kube_context: str | None = None

    def require_gateway(self, command: str) -> str:
        """Return the gateway's address. Raises CommandError if there is none."""
        if not self.gateway:
            raise CommandError(f"{command} needs --gateway, $MCP_EXEC_GATEWAY or a profile", ExitCode.USAGE)
        return self.gateway


def resolve_connection(options: argparse.Namespace) -> Connection:
    """Return the settings for a command. Raises CommandError if the options contradict each other."""
    kubeconfig, kube_context = getattr(options, "kubeconfig", None), getattr(options, "kube_context", None)
    namespace = getattr(options, "namespace", None) or os.environ.get("MCP_EXEC_NAMESPACE")
    if options.program == KUBECTL and not (options.gateway or options.profile):
        return Connection(
            namespace=getattr(options, "namespace", None),
            kubeconfig=kubeconfig or find_kubeconfig(),
            kube_context=kube_context,
        )
    if kubeconfig and (options.gateway or options.profile or options.api_key):
        message = (
            "--kubeconfig is not allowed with --gateway, --api-key or --profile: choose an API server or a gateway"
        )
        raise CommandError(message, ExitCode.USAGE)
    if kube_context and not kubeconfig:
        raise CommandError("--kube-context needs --kubeconfig", ExitCode.USAGE)
    if kubeconfig:
        return Connection(namespace=namespace, kubeconfig=kubeconfig, kube_context=kube_context)
    return resolve_gateway(options, namespace=namespace)


def resolve_gateway(options: argparse.Namespace, *, namespace: str | None = None) -> Connection:
    """Return the settings of a gateway. The key of a profile is only sent to the gateway of that profile."""
    for name in ("gateway", "api_key", "profile"):
        if getattr(options, name) == "":  # of an unset variable of a shell: another one must not be used in its place
            raise CommandError(f"--{name.replace('_', '-')} is empty", ExitCode.USAGE)
    gateway = options.gateway or os.environ.get("MCP_EXEC_GATEWAY")
    key = options.api_key or os.environ.get("MCP_EXEC_API_KEY")
    named = options.profile or os.environ.get("MCP_EXEC_PROFILE")
    reads_profile = named or not options.gateway
    profile = read_profiles(default_path()).select(named) if reads_profile else Profile()
    if options.profile and not options.gateway:
        gateway = profile.gateway  # an option precedes the environment
        key = options.api_key or profile.api_key
    gateway = gateway or profile.gateway
    if gateway and gateway.rstrip("/") == (profile.gateway or "").rstrip("/"):
        key, namespace = key or profile.api_key, namespace or profile.namespace
    if gateway and not gateway.startswith(("http://", "https://")):
        message = f"{gateway} is not the address of a gateway: it must begin with http:// or https://"
        raise CommandError(message, ExitCode.USAGE)
    return Connection(gateway=gateway, api_key=key, namespace=namespace)


@asynccontextmanager
async def open_backend(options: argparse.Namespace) -> AsyncIterator["Backend"]:
    """Yield the gateway or the API server of a command. Raises CommandError."""
    connection = resolve_connection(options)
    if connection.kubeconfig or (options.program == KUBECTL and not connection.gateway):
        from mcp_exec_client.cli.backends.cluster import ClusterBackend

        async with ClusterBackend.connect(
            kubeconfig=connection.kubeconfig, context=connection.kube_context, namespace=connection.namespace
        ) as cluster:
            yield cluster
        return
    async with _connect(options.command, connection) as client:
        from mcp_exec_client.cli.backends.gateway import GatewayBackend

        yield GatewayBackend(client=client, namespace=connection.namespace)


@asynccontextmanager
async def open_client(options: argparse.Namespace) -> AsyncIterator["AsyncClient"]:
    """Yield a client of the gateway, for commands that an API server can't serve. Raises CommandError."""
    connection = resolve_gateway(options, namespace=options.namespace or os.environ.get("MCP_EXEC_NAMESPACE"))
    async with _connect(options.command, connection) as client:
        from mcp_exec_client.cli.backends.gateway import translating

        with translating():
            yield client


def _connect(command: str, connection: Connection) -> "AsyncClient":
    """Return a client of the gateway, which the caller closes. Raises CommandError."""
    gateway = connection.require_gateway(command)
    if not connection.api_key:
        raise CommandError(f"{command} needs --api-key, $MCP_EXEC_API_KEY or a profile", ExitCode.USAGE)
    from mcp_exec_client.client import AsyncClient

    try:
        return AsyncClient(gateway, api_key=connection.api_key, namespace=connection.namespace)
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error


def find_kubeconfig() -> Path | None:
    """Return the file that kubectl would read: $KUBECONFIG, which may list several, or ~/.kube/config if it exists."""
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    default = Path.home() / ".kube" / "config"
    return default if default.exists() else None
