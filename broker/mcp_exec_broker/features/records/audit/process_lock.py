"""A lock in a folder that one process holds until it ends, however it ends."""

import fcntl
import logging
import os
from math import inf
from pathlib import Path
from time import monotonic

log = logging.getLogger(__name__)


class ProcessLock:
    """Whether this process is the only one of those that use a file."""

    def __init__(self, path: Path, *, grace_seconds: float = 0) -> None:
        """Open the file of the lock. Raises OSError.

        If there is none, a process of a release without the lock may use the files for so many seconds.
        """
        self._alone_from = -inf if path.exists() else monotonic() + grace_seconds
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._is_locked = False
        self.is_alone = False
        """Whether `try_acquire` has found that no other process uses the files."""

    def try_acquire(self) -> bool:
        """Take the lock, unless another process holds it. Return whether no other process uses the files."""
        if not self._is_locked:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError as error:
                log.warning("the file system has no locks, so this process is taken for the only one: %s", error)
            self._is_locked = True
        self.is_alone = monotonic() >= self._alone_from
        return self.is_alone

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)
