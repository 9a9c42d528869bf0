"""One fork at a time in the whole sandbox.

A fork bomb grows by doubling, and where a fork is dear (gVisor copies megabytes) it takes all memory before the
supervisor gets the CPU to look. Forks that wait for each other grow by ones; a program that forks usually has only one
process that does.
"""

import contextlib
import fcntl
import os


def serialise() -> None:
    """Make every fork of this interpreter and its forked children take a common lock."""
    # A lock of a process, not of the file: a child doesn't inherit it, and it ends with its holder.
    descriptor = os.memfd_create("forks", os.MFD_CLOEXEC)

    def lock() -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_EX)

    def unlock() -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN)

    os.register_at_fork(before=lock, after_in_parent=unlock)
