"""The release's sandbox key, and the other key that is accepted while it is rotated.

A Secret has them in up to three entries. A rotation takes one step at a time, so that processes that read the Secret at
different times accept what the others sign. A new key is first only accepted (`next-key`). Then it signs (`key`), and
the former one is only accepted (`previous-key`). Then that is removed.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_common.util.signals import Signal

log = logging.getLogger(__name__)

SIGNING_ENTRY: Final = "key"
NEXT_ENTRY: Final = "next-key"
PREVIOUS_ENTRY: Final = "previous-key"
KEY_ENTRIES: Final = (SIGNING_ENTRY, NEXT_ENTRY, PREVIOUS_ENTRY)
"""Entries of the Secret."""


class SandboxKeys:
    """The keys that this process uses now. What is derived from them holds this object and not a key."""

    def __init__(self, signing: bytes, *others: bytes) -> None:
        self._accepted = (signing, *others)
        self.changed: Signal[[]] = Signal()
        """Sent when the keys have changed."""
        self.withdrawn: Signal[[]] = Signal()
        """Sent after `changed` if a key is not accepted any more, and so nothing that it has signed."""

    @property
    def signing(self) -> bytes:
        """The key that this process signs with, and derives new tokens from."""
        return self._accepted[0]

    def __iter__(self) -> Iterator[bytes]:
        """Return the keys that are accepted, the signing one first."""
        return iter(self._accepted)

    def replace(self, accepted: tuple[bytes, ...]) -> bool:
        """Use these keys from now on, the first for signing. Return whether they differ from those before."""
        if accepted == self._accepted:
            return False
        former, self._accepted = self._accepted, accepted
        self.changed.emit()
        if not set(former) <= set(accepted):
            self.withdrawn.emit()
        return True

    def describe(self) -> str:
        """Return which keys are in use by the beginnings of their digests, for the log."""
        signing, *others = (hashlib.sha256(b"mcp-exec key:" + key).hexdigest()[:8] for key in self)
        return f"{signing} signs" + (f", {' and '.join(others)} is accepted, too" if others else "")


def read_keys(entries: Mapping[str, bytes]) -> tuple[bytes, ...]:
    """Return the keys in the entries of a Secret, the signing one first. Raises ValueError if that is absent."""
    keys = [entries.get(entry, b"").strip() for entry in KEY_ENTRIES]
    if not keys[0]:
        raise ValueError(f"there is no entry `{SIGNING_ENTRY}`, or an empty one")
    return tuple(dict.fromkeys(filter(None, keys)))


@dataclass(frozen=True, kw_only=True)
class MountedKeys:
    """The keys in a mounted folder, for processes that the kubelet gives them to."""

    keys: SandboxKeys
    folder: MountedFolder

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the keys in a folder. Raises OSError, and ValueError if there is no signing key."""
        folder = MountedFolder(path=path)
        return cls(keys=SandboxKeys(*read_keys(folder.read())), folder=folder)

    async def follow(self) -> None:
        """Use what the folder has, for ever."""
        await self.folder.follow(self._use)

    def _use(self, entries: Mapping[str, bytes]) -> None:
        if self.keys.replace(read_keys(entries)):
            log.info("the sandbox keys have changed: %s", self.keys.describe())
