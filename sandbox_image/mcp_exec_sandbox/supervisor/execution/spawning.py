"""Start of interpreters, as programs with a control channel and an environment of their own."""

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp_exec_sandbox.protocol import CONTROL_FD, HIDDEN_PREFIXES, Language, RunnerLimits
from mcp_exec_sandbox.supervisor.resources.usage import build_cpu_variables

_MATPLOTLIB_BACKEND = "module://mcp_exec_sandbox.tools.display.matplotlib_backend"
MODULES: dict[Language, str] = {"python": "mcp_exec_sandbox.runner", "typescript": "mcp_exec_sandbox.typescript"}
"""The module that becomes the interpreter of each language."""
Spawn = Callable[[RunnerLimits, Mapping[str, str], int, list[int]], int]
"""Starts an interpreter with an environment, a control channel and stdout and stderr, and returns its pid."""
_DEFAULTS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def spawn_module(
    module: str, limits: RunnerLimits, environment: Mapping[str, str], control: int, outputs: Sequence[int]
) -> int:
    """Start an interpreter with these descriptors as its control channel, stdout and stderr. Return its pid.

    Without `outputs`, it has no output.
    """
    command = [sys.executable, "-P", "-m", module, limits.to_argument()]
    # Copies above the target numbers, so that no descriptor is overwritten before it is copied.
    sources = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in (control, *outputs)]
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_OPEN, target, os.devnull, os.O_WRONLY, 0) for target in (1, 2) if not outputs]
    targets = (CONTROL_FD, 1, 2)[: len(sources)]
    actions += [(os.POSIX_SPAWN_DUP2, source, target) for source, target in zip(sources, targets, strict=True)]
    try:
        return os.posix_spawn(
            sys.executable, command, environment, file_actions=actions, setsid=True, setsigmask=[], setsigdef=_DEFAULTS
        )
    finally:
        for source in sources:
            os.close(source)


def build_runner_environment(environment: Mapping[str, str], *, home: str, temporary: str) -> dict[str, str]:
    """Return the code's environment: the container's without the variables of mcp-exec and of the cluster."""
    kept = {name: value for name, value in environment.items() if not name.startswith(HIDDEN_PREFIXES)}
    # With it every `print` would be two writes. The runner's own streams are line buffered.
    kept.pop("PYTHONUNBUFFERED", None)
    # By default each thread's malloc reserves 64 MiB of the address space, whose limit some thirty threads would reach.
    defaults = {
        "MALLOC_ARENA_MAX": "2",
        "MPLBACKEND": _MATPLOTLIB_BACKEND,
        "XDG_CACHE_HOME": f"{temporary}/.cache",
    }
    return {**defaults, **build_cpu_variables(kept), **kept, "HOME": home, "TMPDIR": temporary, "PYTHONUTF8": "1"}
