"""Explanation of failed imports of wrappers and libraries, instead of Python's plain 'No module named'."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from mcp_exec_sandbox.protocol import SERVERS_FOLDER
from mcp_exec_sandbox.tools import tool_session
from mcp_exec_sandbox.tools.arguments import find_similar


class ImportHintFinder:
    """Last finder of `sys.meta_path`, called only for modules that no other finder found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None. For `servers`, `servers.X`, `servers.X.Y` and libraries raise an error that says what exists."""
        if name == "servers" or (name.startswith("servers.") and name.count(".") == 1):
            # An error that names the module would be taken by `from servers import X` for its own, and hidden.
            raise ModuleNotFoundError(_explain_missing_server(name))
        package, _, tool = name.rpartition(".")
        if package.startswith("servers.") and (known := getattr(sys.modules.get(package), "__all__", None)):
            # `from servers.X import Y` looks for a module Y too, before it raises that X has no Y.
            raise ModuleNotFoundError(_explain_missing_tool(package, tool, known))
        if path is None and not name.startswith("_") and name not in sys.stdlib_module_names and _is_import():
            from mcp_exec_sandbox.tools.libraries.hints import explain_missing_library

            raise ModuleNotFoundError(explain_missing_library(name), name=name)
        return None


def _is_import() -> bool:
    """Return whether an import calls the finder. `importlib.util.find_spec` has to return None."""
    return sys._getframe(3).f_code.co_name == "_find_and_load_unlocked"  # noqa: SLF001 - nothing else differs


def _explain_missing_tool(package: str, tool: str, known: Sequence[str]) -> str:
    text = f"{package} has no {tool!r}"
    if close := find_similar(tool, known):
        return f"{text}. Did you mean: {', '.join(close)}?"
    return f"{text}: it has {', '.join(known[:50])}"


def _explain_missing_server(name: str) -> str:
    session = tool_session.get_session()
    if not session.allow:
        return f"No module named {name!r}: this execution may call no tools, as its spec.tools is empty"
    folder = session.workspace / SERVERS_FOLDER
    servers = sorted(entry.parent.name for entry in folder.glob("*/__init__.py"))
    if not servers:
        hint = "`from client import call_mcp_tool` works without them"
        return f"No module named {name!r}: this sandbox has no wrappers yet. {hint}"
    text = f"No module named {name!r}: this execution may use {', '.join(servers[:50])}"
    if close := find_similar(name.partition(".")[2], servers):
        text += f". Did you mean: servers.{close[0]}?"
    return text + f" (spec.tools: {', '.join(session.allow[:20])})"
