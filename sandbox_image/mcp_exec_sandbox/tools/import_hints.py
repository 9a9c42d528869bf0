"""Says why a server's wrappers can't be imported, where Python alone would only say that there are none."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from mcp_exec_sandbox.protocol import SERVERS_FOLDER
from mcp_exec_sandbox.tools import tool_session as session
from mcp_exec_sandbox.tools.arguments import alike


class ServersHint:
    """The last finder of all: asked only for modules that nobody has found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Nothing, or for `servers`, `servers.X` and `servers.X.Y` an error that names what there is."""
        if name == "servers" or (name.startswith("servers.") and name.count(".") == 1):
            # Without the module's name in it: `from servers import X` would take the error for its own and hide it.
            raise ModuleNotFoundError(_hint(name))
        package, _, tool = name.rpartition(".")
        if package.startswith("servers.") and (known := getattr(sys.modules.get(package), "__all__", None)):
            # `from servers.X import Y` looks for a module as well, before it says that there is no Y.
            raise ModuleNotFoundError(_tool_hint(package, tool, known))
        return None


def _tool_hint(package: str, tool: str, known: Sequence[str]) -> str:
    text = f"{package} has no {tool!r}"
    if close := alike(tool, known):
        return f"{text}. Did you mean: {', '.join(close)}?"
    return f"{text}: it has {', '.join(known[:50])}"


def _hint(name: str) -> str:
    found = session.current()
    if not found.allow:
        return f"No module named {name!r}: this execution may call no tools, as its spec.tools is empty"
    folder = found.workspace / SERVERS_FOLDER
    there = sorted(entry.parent.name for entry in folder.glob("*/__init__.py"))
    if not there:
        return f"No module named {name!r}: no wrappers are here yet. `from client import call_mcp_tool` works without"
    text = f"No module named {name!r}: this execution may use {', '.join(there[:50])}"
    if close := alike(name.partition(".")[2], there):
        text += f". Did you mean: servers.{close[0]}?"
    return text + f" (spec.tools: {', '.join(found.allow[:20])})"
