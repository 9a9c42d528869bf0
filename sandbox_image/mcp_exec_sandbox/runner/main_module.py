"""Module that the agent's code runs in: a real `__main__` with the context as variables."""

import builtins
import keyword
import linecache
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from mcp_exec_sandbox.tools.calls import call_mcp_tool
from mcp_exec_sandbox.tools.discovery import search_tools
from mcp_exec_sandbox.tools.display.show import display, show
from mcp_exec_sandbox.tools.progress import progress

CONTEXT_NAME = "context"
_SPAWNED_NAME = "__mp_main__"
"""Name of `__main__` in interpreters that `multiprocessing` spawns."""
PREDEFINED = {
    "call_mcp_tool": call_mcp_tool,
    "display": display,
    "progress": progress,
    "search_tools": search_tools,
    "show": show,
}
"""Functions that code may use without an import."""


class MainModule(ModuleType):
    """`__main__`, whose file exists only for the modules that start interpreters."""

    @property
    def __file__(self) -> str:
        """Path of the file. The code's own variable of this name is a path in the workspace."""
        caller = sys._getframe(1).f_globals.get("__name__")
        if isinstance(caller, str) and caller.rpartition(".")[2] == "spawn":
            from mcp_exec_sandbox.runner.spawned_main import write_main_file

            return write_main_file(self.__dict__)
        return str(self.__dict__.get("__file__"))

    @__file__.setter
    def __file__(self, path: str) -> None:
        self.__dict__["__file__"] = path


def create_main_module(context: dict[str, Any], workspace: Path) -> ModuleType:
    """Create and register a new `__main__`, where dataclasses, pickle and `get_type_hints` find the code's names."""
    module = MainModule("__main__")
    module.__file__ = str(workspace / "agent.py")
    module.__dict__["__builtins__"] = builtins
    module.__dict__.update(PREDEFINED | select_variables(context))
    register(module)
    return module


def register(module: ModuleType) -> None:
    """Make the module `__main__`, by both names that pickles of `multiprocessing` use for it."""
    sys.modules["__main__"] = module
    if _SPAWNED_NAME in sys.modules:
        # `multiprocessing` was imported before, by a module of the pool: it noted the `__main__` of that time.
        sys.modules[_SPAWNED_NAME] = module


def renew_main_module(module: ModuleType, context: dict[str, Any]) -> None:
    """Add the context of a session's next job to the variables that the earlier ones left."""
    module.__dict__.update(select_variables(context))
    register(module)


def link_source(module: ModuleType, file: str, *, job: int) -> None:
    """Let `inspect.getsource` find classes of the code, which it looks up in the module's file.

    From Python 3.13 a class has the number of its line only, so in a session a class of an earlier job would get the
    lines of the last one.
    """
    name = getattr(module, "__file__", None)
    if not isinstance(name, str):
        return
    if job > 1 and sys.version_info >= (3, 13):
        linecache.cache.pop(name, None)
    elif file in linecache.cache:
        linecache.cache[name] = linecache.cache[file]


def select_variables(context: dict[str, Any]) -> dict[str, Any]:
    """Return the code's first variables: `context` itself and those of its keys that can be variables.

    A key can't be one if it is no identifier, is a keyword, would hide a builtin (`id`, `type`) or begins with two
    underscores. The code reads these from `context`.
    """
    variables = {
        key: value
        for key, value in context.items()
        if key.isidentifier() and not keyword.iskeyword(key) and not key.startswith("__") and not hasattr(builtins, key)
    }
    return {**variables, CONTEXT_NAME: context}
