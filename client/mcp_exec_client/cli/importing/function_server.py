"""MCP server of an application's own functions, run as `python3 -c SERVER SETTINGS SOURCE`.

SETTINGS is JSON: `server` (its name), `file` (for tracebacks) and `tools` (the functions). SOURCE is a Python module.
"""

import contextlib
import functools
import inspect
import json
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from types import ModuleType
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

MODULE = "application"
MAX_ERROR = 1000


def load_functions(source: str, file: str, names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Run a module and return its functions of these names. Raises ValueError if one is not a function."""
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module  # type hints are resolved there
    exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102 - the application's own source
    functions = {}
    for name in names:
        value = getattr(module, name, None)
        function = value if inspect.isroutine(value) else getattr(value, "func", None)  # a decorator's object has it
        if not callable(function):
            raise ValueError(f"{name} of {file} is not a function but {type(value).__name__}")
        functions[name] = function
    return functions


def build_server(name: str, functions: dict[str, Callable[..., Any]]) -> MCPServer[Any]:
    """Return a server with these functions as tools."""
    server: MCPServer[Any] = MCPServer(name, lifespan=_print_to_log)
    for tool, function in functions.items():
        server.add_tool(_report_errors(function), name=tool, description=inspect.getdoc(function) or "")
    return server


def _report_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with errors that have their text: of other errors, the SDK's servers send none."""

    @functools.wraps(function)
    async def call_async(**arguments: Any) -> Any:
        try:
            return await function(**arguments)
        except Exception as error:
            raise _to_tool_error(error) from error

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        try:
            return function(**arguments)
        except Exception as error:
            raise _to_tool_error(error) from error

    return call_async if inspect.iscoroutinefunction(function) else call


def _to_tool_error(error: Exception) -> ToolError:
    traceback.print_exception(error)  # to the log
    return ToolError(f"{type(error).__name__}: {str(error)[:MAX_ERROR]}")


@contextlib.asynccontextmanager
async def _print_to_log(_: MCPServer[Any]) -> AsyncIterator[None]:
    """Send what functions print to standard error: the buffer of standard output would follow the last message."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def main() -> None:
    """Serve standard input and output until it ends."""
    settings = json.loads(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):  # only the protocol may write to standard output
        functions = load_functions(sys.argv[2], settings["file"], settings["tools"])
    build_server(settings["server"], functions).run()


if __name__ == "__main__":
    main()
