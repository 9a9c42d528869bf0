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


class _ForkLock:
    """Lock that this interpreter and its forked children have in common, and the count of their tasks."""

    def __init__(self) -> None:
        self._lock = -1
        self._count: int | None = None

    def open(self) -> None:
        """Take a new lock, which no other process has."""
        # The lock belongs to a process, not to the file: a child doesn't inherit it, and it ends with its holder.
        self._lock = os.memfd_create("forks", os.MFD_CLOEXEC)
        self._count = _open_first(CGROUP_FILES)

    def close(self) -> None:
        """Use no lock any more."""
        for descriptor in (self._lock, self._count):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._lock, self._count = -1, None

    def acquire(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            fcntl.lockf(self._lock, fcntl.LOCK_EX)
            if self._count is not None and int(os.pread(self._count, 32, 0)) > MANY_TASKS:
                time.sleep(PAUSE_SECONDS)

    def release(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


_lock = _ForkLock()


def serialize_forks() -> None:
    """Make every fork of this interpreter and its forked children take a common lock."""
    _lock.open()
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release)


def close_lock() -> None:
    """Use no lock in a template: its memory would be common to all runners."""
    _lock.close()


def open_lock() -> None:
    """Use a lock of its own in a runner that was forked from a template."""
    _lock.open()


def _open_first(paths: tuple[str, ...]) -> int | None:
    for path in paths:
        with contextlib.suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None
