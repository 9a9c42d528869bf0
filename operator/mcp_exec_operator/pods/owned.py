"""Index of the idle pods that are kept for their owners. No I/O."""

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(kw_only=True, eq=False)
class OwnedPods:
    """Names of idle pods by the digest of their owner. Every operation takes constant time."""

    _by_owner: dict[str, OrderedDict[str, None]] = field(default_factory=dict)
    """Of an owner's pods, the least recently used first."""

    def add(self, name: str, owner: str) -> None:
        """Add a pod that was just used."""
        self._by_owner.setdefault(owner, OrderedDict())[name] = None

    def remove(self, name: str, owner: str) -> None:
        """Remove a pod."""
        names = self._by_owner.get(owner, OrderedDict())
        names.pop(name, None)
        if not names:
            self._by_owner.pop(owner, None)

    def newest(self, owner: str) -> str | None:
        """Return the most recently used pod of an owner, or None. The others grow old and are deleted."""
        names = self._by_owner.get(owner)
        return next(reversed(names)) if names else None

    def count(self, owner: str) -> int:
        """Return how many pods an owner has."""
        return len(self._by_owner.get(owner, ()))
