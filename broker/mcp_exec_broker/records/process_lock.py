"""A lock of a folder that one process holds until it ends, however it ends."""

import fcntl
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


class ProcessLock:
    """Whether this process is the only one of those that use a file."""

    def __init__(self, path: Path) -> None:
        """Open the file of the lock. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.is_held = False

    def try_acquire(self) -> bool:
        """Take the lock, unless another process holds it. Return whether this process holds it."""
        if not self.is_held:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError as error:
                log.warning("the file system has no locks, so this process is taken for the only one: %s", error)
            self.is_held = True
        return True

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)
