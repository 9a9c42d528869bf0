"""Limit of forks in the whole sandbox: one at a time, with pauses if there are many processes.

A fork bomb grows by doubling. If a fork is expensive (gVisor copies 13 MiB of an idle interpreter), it uses all memory
before the supervisor gets CPU time to check. With forks in turn the bomb grows by one process at a time, and a program
with one process that forks sees no difference.
"""

import contextlib
import fcntl
import os
import time

CGROUP_FILES = ("/sys/fs/cgroup/pids.current", "/sys/fs/cgroup/pids/pids.current")
MANY_TASKS = 16
PAUSE_SECONDS = 0.05


def serialize_forks() -> None:
    """Make every fork of this interpreter and its forked children take a common lock."""
    # The lock belongs to a process, not to the file: a child doesn't inherit it, and it ends with its holder.
    lock = os.memfd_create("forks", os.MFD_CLOEXEC)
    count = _open_first(CGROUP_FILES)

    def acquire() -> None:
        with contextlib.suppress(OSError, ValueError):
            fcntl.lockf(lock, fcntl.LOCK_EX)
            if count is not None and int(os.pread(count, 32, 0)) > MANY_TASKS:
                time.sleep(PAUSE_SECONDS)

    def release() -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(lock, fcntl.LOCK_UN)

    os.register_at_fork(before=acquire, after_in_parent=release)


def _open_first(paths: tuple[str, ...]) -> int | None:
    for path in paths:
        with contextlib.suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None
