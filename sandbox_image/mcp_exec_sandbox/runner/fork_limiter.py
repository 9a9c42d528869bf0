"""One fork at a time in the whole sandbox, and with pauses once there are many processes.

A fork bomb grows by doubling, and where a fork is dear (gVisor copies 13 MiB of an idle interpreter) it takes all
memory before the supervisor gets the CPU to look. So forks wait for each other: the bomb grows by ones, and a program
with one process that forks doesn't notice.
"""

import contextlib
import fcntl
import os
import time

CGROUP_FILES = ("/sys/fs/cgroup/pids.current", "/sys/fs/cgroup/pids/pids.current")
MANY_TASKS = 16
PAUSE_SECONDS = 0.05


def serialise() -> None:
    """Make every fork of this interpreter and its forked children take a common lock."""
    # A lock of a process, not of the file: a child doesn't inherit it, and it ends with its holder.
    lock = os.memfd_create("forks", os.MFD_CLOEXEC)
    count = _open_first(CGROUP_FILES)

    def before() -> None:
        with contextlib.suppress(OSError, ValueError):
            fcntl.lockf(lock, fcntl.LOCK_EX)
            if count is not None and int(os.pread(count, 32, 0)) > MANY_TASKS:
                time.sleep(PAUSE_SECONDS)

    def after() -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(lock, fcntl.LOCK_UN)

    os.register_at_fork(before=before, after_in_parent=after)


def _open_first(paths: tuple[str, ...]) -> int | None:
    for path in paths:
        with contextlib.suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None
