"""Compare the outcomes of CPython's tests inside runs of a sandbox with those in child processes of runs.

python -m hack.cpython ROOT [MODULE]...    ROOT: the files of the sandbox's image and the package `test`

Prints a line for each module. Exits with 1 if a test differs that hack/cpython/known.py does not have, or if one of
those does not differ. Needs root: the supervisor runs in ROOT, as its own first process.
"""

import contextlib
import hashlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hack.cpython.known import MODULES, find_problems

_INSIDE: Final = Path(__file__).with_name("inside.py")
_OUTCOMES: Final = "/tmp/outcomes.json"
_CHILD: Final = "import subprocess, sys\nsubprocess.run([sys.executable, 'inside.py', {module!r}, {file!r}])"
_START_SECONDS: Final = 60
_RUN_SECONDS: Final = 600
_MEMORY_BYTES: Final = 2 << 30
"""Room for tests that compress with LZMA, whose garbage would leave too little to the next ones."""
_USER: Final = 1_000_000_000
"""A user that has no process on this machine."""


@contextlib.contextmanager
def start_sandbox(root: Path, token: str) -> Iterator[int]:
    """Run a supervisor with empty folders in `root`, and return its port."""
    for name in ("workspace", "tmp"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir()
        os.chown(root / name, _USER, _USER)
    shutil.copy(_INSIDE, root / "workspace")
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": "/opt/mcp-exec:/opt/packages",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/workspace",
        "LANG": "C.UTF-8",
        "USER": "agent",
        "MCP_EXEC_TOKEN_SHA256": hashlib.sha256(token.encode()).hexdigest(),
        "MCP_EXEC_HOST": "127.0.0.1",
        "MCP_EXEC_MEMORY_BYTES": str(_MEMORY_BYTES),
        "MCP_EXEC_PORT": "0",
        "MCP_EXEC_WORKSPACE": "/workspace",
        "MCP_EXEC_TMP": "/tmp",
    }
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc"]
    command += ["chroot", f"--userspec={_USER}:{_USER}", str(root)]
    command += ["python3", "-P", "/opt/mcp-exec/mcp_exec_sandbox/__main__.py"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, cwd="/") as process:
        try:
            assert process.stdout is not None
            readable, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
            if not readable or not (line := process.stdout.readline()):
                sys.exit("the supervisor did not become ready")
            yield json.loads(line)["port"]
        finally:
            # the change of its user takes the supervisor's wish to end with its parent, so it is ended by name
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            process.kill()


def run_tests(root: Path, module: str, *, in_child: bool) -> dict[str, str]:
    """Return the outcomes of a module's tests. If there are none, one entry says how the run ended."""
    token = secrets.token_hex(16)
    code = _INSIDE.read_text().rpartition("if __name__")[0] + f"run({module!r}, {_OUTCOMES!r})\n"
    if in_child:
        code = _CHILD.format(module=module, file=_OUTCOMES)
    fields = {"id": "tests", "code": code, "context": {}, "timeoutSeconds": _RUN_SECONDS, "outputBytes": 65536}
    with start_sandbox(root, token) as port:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/execution",
            data=json.dumps(fields).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_RUN_SECONDS + 60) as response:
            end: dict[str, Any] = [json.loads(line) for line in response][-1]
        try:
            found: dict[str, str] = json.loads((root / _OUTCOMES.removeprefix("/")).read_bytes())
        except (OSError, ValueError):
            found = {"module": f"failed: {end['phase']} {end['reason']} {str(end['error'])[-500:]}"}
    return found


def main() -> None:
    """Compare all modules, or those that are named."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root, modules = Path(sys.argv[1]).resolve(), sys.argv[2:] or MODULES
    problems = []
    for module in modules:
        started = time.monotonic()
        inside, child = (run_tests(root, f"test.{module}", in_child=in_child) for in_child in (False, True))
        found = find_problems(module, inside, child)
        seconds = time.monotonic() - started
        print(f"{module}: {len(inside)} tests in {seconds:.0f} s, {len(found)} problems", flush=True)
        print("".join(f"  {problem}\n" for problem in found), end="", flush=True)
        problems += found
    if problems:
        sys.exit(
            f"{len(problems)} differences without a reason, or reasons without a difference (hack/cpython/known.py)"
        )


if __name__ == "__main__":
    main()
