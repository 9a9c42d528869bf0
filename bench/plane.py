"""Run a command with a control plane of its own: etcd, API server, controllers and scheduler, without nodes.

The executables are those of KUBERNETES_BINARIES. The command gets KUBECONFIG and BENCH_AUDIT_LOG, and the definitions
of this checkout exist. All ends with the command, and its status is that of the command. etcd does not wait for the
disk.

    KUBERNETES_BINARIES=DIR python bench/plane.py python bench/knee.py --modes single --json knee.json
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from harness import ROOT
from programs import Need
from tests.support.control_plane import ControlPlane, running_control_plane

_LONGEST_SECONDS: Final = 6 * 3600


@contextmanager
def plane_running(*, audit: bool = False) -> Iterator[ControlPlane]:
    """Run a control plane with this checkout's definitions. `audit` logs all writes.

    Raises SystemExit if there are no executables, and RuntimeError if the definitions are refused.
    """
    if not os.environ.get(Need.BINARIES.value):
        raise SystemExit(f"{Need.BINARIES.value} must be a folder with the executables of Kubernetes")
    with tempfile.TemporaryDirectory(prefix="mcp-exec-bench-") as name:
        folder = Path(name) / "plane"
        with running_control_plane(folder, controllers=True, scheduler=True, audit=audit) as plane:
            crds = str(ROOT / "crds")
            applied = plane.kubectl("apply", "--server-side", "--force-conflicts", "--filename", crds)
            if applied.returncode:
                raise RuntimeError(f"the definitions were not applied: {applied.stderr}")
            yield plane


def main() -> None:
    """Run the command, and exit with its status."""
    command = sys.argv[1:]
    if not command or command[0].startswith("-"):
        raise SystemExit(__doc__)
    with plane_running(audit=True) as plane:
        environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "BENCH_AUDIT_LOG": str(plane.audit_log)}
        status = subprocess.run(command, env=environment, check=False, timeout=_LONGEST_SECONDS).returncode
    sys.exit(status)


if __name__ == "__main__":
    main()
