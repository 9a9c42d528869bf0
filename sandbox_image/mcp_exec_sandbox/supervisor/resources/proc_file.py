"""Files of /proc and /sys that are read repeatedly. Each is opened once, because opening is slow in gVisor."""

import contextlib
import os
from pathlib import Path

READ_BYTES = 64 * 1024


class ProcFile:
    """A file whose contents the kernel generates at each read. A missing file reads as empty."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read_text(self) -> str:
        """Return the current contents."""
        if self._descriptor is None:
            return ""
        with contextlib.suppress(OSError):
            return os.pread(self._descriptor, READ_BYTES, 0).decode("ascii", "replace")
        return ""

    def read_number(self) -> int | None:
        """Return the number that is the file's whole contents, or None if it has other contents."""
        text = self.read_text().strip()
        return int(text) if text.isdigit() else None

    def read_field(self, name: str) -> int:
        """Return the number after `name` at the beginning of a line, or 0 if no line begins with `name`."""
        for line in self.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name and value.split()[:1] and value.split()[0].isdigit():
                return int(value.split()[0])
        return 0

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
