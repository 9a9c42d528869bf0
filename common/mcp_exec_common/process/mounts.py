"""Folders that the kubelet mounts from a Secret or a ConfigMap, and replaces in place when that changes."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

log = logging.getLogger(__name__)

_MAX_FILES: Final = 256
_MAX_BYTES: Final = 2 * 2**20
"""More than the content of a Secret or a ConfigMap, which is at most 1 MiB."""
_PRESENT: Final = "..data"
"""Link to the folder with all present files, which the kubelet replaces at once."""


@dataclass(frozen=True, kw_only=True)
class MountedFolder:
    """The entries of a mounted Secret or ConfigMap."""

    CHECK_SECONDS: ClassVar[float] = 2.0
    """Interval of checks. The kubelet itself takes a minute or two to write a change."""

    path: Path
    only: str = ""
    """Name of the one entry that is read, if the others do not matter."""

    def read(self) -> dict[str, bytes]:
        """Return all entries, of one version. Raises OSError, and ValueError if they are larger than any Secret."""
        folder = self.find_present()
        entries: dict[str, bytes] = {}
        left = _MAX_BYTES
        for file in [folder / self.only] if self.only else sorted(folder.iterdir()):
            if file.name.startswith(".") or not file.is_file():
                continue
            with file.open("rb") as opened:
                entries[file.name] = opened.read(left + 1)
            left -= len(entries[file.name])
            if left < 0 or len(entries) > _MAX_FILES:
                raise ValueError(f"{self.path} has more than {_MAX_FILES} files or {_MAX_BYTES} bytes")
        return entries

    def find_present(self) -> Path:
        """Return the folder of the present version, which does not change. Raises OSError."""
        present = self.path / _PRESENT
        # not through the link, which may point to another version at the next file
        return present.resolve(strict=True) if present.is_symlink() else self.path

    async def follow(self, on_change: Callable[[dict[str, bytes]], None]) -> None:
        """Pass on the entries when they differ from those passed on last, for ever, beginning with the present ones.

        Entries that can't be read, or that `on_change` refuses by a ValueError, are logged once and tried again.
        """
        passed: dict[str, bytes] | None = None
        problem = ""
        while True:
            try:
                if (entries := self.read()) != passed:
                    on_change(entries)
                    passed = entries
                problem = ""
            except (OSError, ValueError) as error:
                if str(error) != problem:
                    problem = str(error)
                    log.error("%s can't be read, so its last content stays in use: %s", self.path, error)
            await asyncio.sleep(self.CHECK_SECONDS)
