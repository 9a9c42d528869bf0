"""Which observations are older than others: lists and answers may arrive after the watch events of later changes."""

from dataclasses import dataclass, field
from typing import Final

_MAX_DELETED: Final = 10_000


@dataclass(kw_only=True, eq=False)
class DeletedUids:
    """Uids of the objects that were deleted last. An older list may still have them; no object gets one again."""

    limit: int = _MAX_DELETED
    _uids: dict[str, None] = field(default_factory=dict)

    def add(self, uid: str) -> None:
        """Record a deletion."""
        self._uids[uid] = None
        if len(self._uids) > self.limit:
            del self._uids[next(iter(self._uids))]

    def __contains__(self, uid: object) -> bool:
        return uid in self._uids


def is_older(version: str, than: str) -> bool:
    """Return whether a resource version is earlier than another; False if they are not numbers."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)
