"""Copies of objects that the API server has stored, written to etcd as it would write them, but many at a time.

The API server learns of them from its watches of etcd, as of the writes of another API server.
"""

import uuid
from dataclasses import dataclass
from typing import Final, Self

from etcd import Etcd

from mcp_exec_common.kube.objects import Object

PREFIX: Final = "/registry/mcp-exec.dev"
AT_ONCE: Final = 100
"""Copies in one transaction."""


@dataclass(frozen=True, kw_only=True)
class StoredCopies:
    """Copies of one custom object, in each of its states: when it was created, and now."""

    etcd: Etcd
    prefix: str
    """Beginning of the keys of all objects of its kind and namespace."""
    name: str
    uid: str
    states: tuple[bytes, ...]

    @classmethod
    async def load(cls, etcd: Etcd, resource: str, item: Object) -> Self:
        """Read the states of an object that has a status. Raises KeyError if etcd does not have it."""
        metadata = item["metadata"]
        prefix = f"{PREFIX}/{resource}/{metadata['namespace']}/"
        now, created_at = await etcd.get(prefix + metadata["name"])
        created, _ = await etcd.get(prefix + metadata["name"], revision=created_at)
        return cls(etcd=etcd, prefix=prefix, name=metadata["name"], uid=metadata["uid"], states=(created, now))

    async def write(self, first: int, last: int) -> None:
        """Write copies with these numbers, with names and uids of their own. Each has all states of the object."""
        for start in range(first, last, AT_ONCE):
            names = {self._name(number): str(uuid.uuid4()) for number in range(start, min(start + AT_ONCE, last))}
            for state in self.states:
                await self.etcd.put({self.prefix + name: self._copy(state, name, uid) for name, uid in names.items()})

    async def delete(self) -> None:
        """Delete all objects of the kind in the namespace."""
        await self.etcd.delete(self.prefix)

    def _name(self, number: int) -> str:
        return f"{self.name}-{number}"

    def _copy(self, state: bytes, name: str, uid: str) -> bytes:
        return state.replace(f'"{self.name}"'.encode(), f'"{name}"'.encode()).replace(self.uid.encode(), uid.encode())
