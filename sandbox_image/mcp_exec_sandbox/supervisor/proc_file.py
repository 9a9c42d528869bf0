"""Files of /proc and /sys that are read again and again: opened once, as opening is the dear part in gVisor."""

import contextlib
import os
from pathlib import Path

READ_BYTES = 64 * 1024


class PseudoFile:
    """A file that the kernel makes up at each reading. A file that isn't there reads as empty."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def text(self) -> str:
        """What stands in it now."""
        if self._descriptor is None:
            return ""
        with contextlib.suppress(OSError):
            return os.pread(self._descriptor, READ_BYTES, 0).decode("ascii", "replace")
        return ""

    def number(self) -> int | None:
        """Its one number, or None if it isn't one."""
        text = self.text().strip()
        return int(text) if text.isdigit() else None

    def field(self, name: str) -> int:
        """The number behind a name at the beginning of a line; 0 if there is none."""
        for line in self.text().splitlines():
            key, _, value = line.partition(" ")
            if key == name and value.split()[:1] and value.split()[0].isdigit():
                return int(value.split()[0])
        return 0

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
