"""The Python client and the `mcp-exec` command.

The names of the client are imported when they are used: the command's help needs none of its dependencies.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer to import than what the programs need before they handle an interrupt
    from typing import Any, Final

    from mcp_exec_client.blocking import Client as Client
    from mcp_exec_client.client import AsyncClient as AsyncClient
    from mcp_exec_client.errors import GatewayError as GatewayError
    from mcp_exec_client.errors import GatewayUnreachable as GatewayUnreachable
    from mcp_exec_client.errors import McpExecError as McpExecError
    from mcp_exec_client.errors import WaitExpired as WaitExpired
    from mcp_exec_client.executor import CodeExecutor as CodeExecutor
    from mcp_exec_client.network import PlainHttpWarning as PlainHttpWarning
    from mcp_exec_client.transport import RetryPolicy as RetryPolicy
    from mcp_exec_client.types import Execution as Execution
    from mcp_exec_client.types import ExecutionFailed as ExecutionFailed

_MODULES: "Final" = {
    "AsyncClient": "client",
    "Client": "blocking",
    "CodeExecutor": "executor",
    "Execution": "types",
    "ExecutionFailed": "types",
    "GatewayError": "errors",
    "GatewayUnreachable": "errors",
    "McpExecError": "errors",
    "PlainHttpWarning": "network",
    "RetryPolicy": "transport",
    "WaitExpired": "errors",
}
"""Module of each public name."""
__all__ = list(_MODULES)


def __getattr__(name: str) -> "Any":
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{__name__}.{name} needs {error.name}: install the extra `client` of mcp-exec") from error
