"""Start of the TypeScript runner: `python3 -P -m mcp_exec_sandbox.typescript LIMITS`, with the control channel as
descriptor 3.

The process sets the limits and the filter of system calls, which its program inherits, and becomes Deno. The engine
reserves address space far beyond its memory, so it lives under no limit of it: its heap has a limit of its own, and
memory outside of the heap is the watchdog's.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from mcp_exec_sandbox.protocol import RunnerLimits
from mcp_exec_sandbox.runner.limits import limit_processes
from mcp_exec_sandbox.runner.seccomp import install_filter

MIB = 1024 * 1024
OUTSIDE_HEAP_BYTES = 128 * MIB
"""Memory of the engine itself (110 to 130 MB in gVisor), and of what code has outside of its heap."""
_ROOT = Path(__file__).resolve().parent.parent
RUNNER = _ROOT / "typescript_runner"
CACHE = _ROOT / "deno-cache"
"""Folder with the compiled runner, which nothing writes to in a sandbox."""
_PYTHON_VARIABLES = ("PYTHON", "MPL", "MALLOC_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class RunnerNotInstalled(Exception):
    """This sandbox has no Deno."""


def find_deno() -> Path:
    """Return Deno's program: that of the image, or of the virtual environment.

    Raises:
        RunnerNotInstalled: there is none.
    """
    places = (_ROOT / "bin" / "deno", Path(sys.executable).parent / "deno")
    for place in places:
        if os.access(place, os.X_OK):
            return place
    raise RunnerNotInstalled(f"there is no Deno: {' and '.join(map(str, places))} do not exist")


def build_command(limits: RunnerLimits, *, deno: Path, workspace: str, temporary: str) -> list[str]:
    """Return Deno's command line. It has the rights that the runner needs to start, which gives up most of them."""
    folders = f"{workspace},{temporary}"
    heap = max(limits.memory_bytes - OUTSIDE_HEAP_BYTES, limits.memory_bytes // 2)
    return [
        *(str(deno), "run", "--quiet", "--no-prompt", "--no-config", "--no-lock", "--no-remote", "--no-npm"),
        *(
            "--no-code-cache",
            f"--import-map={RUNNER / 'imports.json'}",
            f"--v8-flags=--max-old-space-size={heap // MIB}",
        ),
        *(f"--allow-read={folders}", f"--allow-write={folders}", "--allow-net", "--allow-env", "--allow-sys"),
        str(RUNNER / "main.ts"),
    ]


def build_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the code's environment, without what only Python reads, and proxies, which Deno would call tools by."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_PYTHON_VARIABLES) and name.lower() not in _PROXIES
    }
    return {**kept, "DENO_DIR": str(CACHE), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}


def main(limits: RunnerLimits) -> None:
    """Become Deno, with the limits of the code.

    Raises:
        RunnerNotInstalled: there is no Deno.
    """
    environment = build_environment(os.environ)
    workspace, temporary = os.getcwd(), environment.get("TMPDIR", "/tmp")  # noqa: S108 - the pod's own emptyDir
    command = build_command(limits, deno=find_deno(), workspace=workspace, temporary=temporary)
    limit_processes(limits)
    # The supervisor asks for Python's stack by it, which would end Deno.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    install_filter(os.getppid())
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    main(RunnerLimits.from_argument(sys.argv[1]))
