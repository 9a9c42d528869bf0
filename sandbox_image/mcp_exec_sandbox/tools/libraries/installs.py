"""Installations of packages by a child process: they fail at once, with an answer, instead of by a missing `pip`."""

import functools
import os
import subprocess
from collections.abc import Callable
from typing import Any

from mcp_exec_sandbox.tools.libraries.hints import explain_install, is_installed
from mcp_exec_tools.source.lines import find_installed_packages

_MAX_WORDS = 50


def explain_installs() -> None:
    """Make commands that install packages raise ModuleNotFoundError, unless the image has pip."""
    subprocess.Popen.__init__ = _wrap(subprocess.Popen.__init__, place=1)  # type: ignore[method-assign]
    os.system = _wrap(os.system, place=0)


def _wrap(original: Callable[..., Any], *, place: int) -> Callable[..., Any]:
    """Return a function that checks the command, the argument at a place, first."""

    @functools.wraps(original)
    def start(*values: Any, **options: Any) -> Any:
        command = values[place] if len(values) > place else options.get("args", options.get("command", ""))
        _refuse_install(_join(command))
        return original(*values, **options)

    return start


def _join(command: Any) -> str:
    """Return a command as one text."""
    words = command[:_MAX_WORDS] if isinstance(command, (list, tuple)) else [command]
    return " ".join(os.fsdecode(word) for word in words if isinstance(word, (str, bytes, os.PathLike)))


def _refuse_install(command: str) -> None:
    packages = find_installed_packages(command)
    if packages is not None and not is_installed("pip"):
        raise ModuleNotFoundError(f"`{command[:60]}`: {explain_install(packages)}", name="pip")
