"""Values, size, compaction and defragmentation of etcd, by its HTTP API, and copies of objects written to it."""

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp
from processes import COLLECT, MB, METRICS, PROFILE, read_heap
from waits import within

from mcp_exec_common.kube.objects import Object

SECONDS: Final = 300.0
"""Limit of one request: a defragmentation writes the whole database again."""
PREFIX: Final = "/registry/mcp-exec.dev"
AT_ONCE: Final = 100
"""Copies in one transaction."""


def _encode(text: bytes) -> str:
    return base64.b64encode(text).decode()


@dataclass(frozen=True, kw_only=True)
class EtcdSize:
    """The database at one time, in MB (10^6 bytes)."""

    file: float
    """The database file: what etcd's quota bounds. It never shrinks without a defragmentation."""
    used: float
    """What objects and their history take in it."""
    revision: int
    """Number of the last write."""


@dataclass(frozen=True, kw_only=True)
class Etcd:
    """One etcd member without TLS."""

    session: aiohttp.ClientSession
    url: str

    async def measure(self) -> EtcdSize:
        """Read the size of the database."""
        found = await self._post("maintenance/status", {})
        file, used = (round(int(found[name]) / MB, 2) for name in ("dbSize", "dbSizeInUse"))
        return EtcdSize(file=file, used=used, revision=int(found["header"]["revision"]))

    async def compact(self) -> None:
        """Remove the history of all objects, as the API server does every five minutes for what is older than that."""
        revision = (await self.measure()).revision
        await self._post("kv/compaction", {"revision": str(revision), "physical": True})

    async def defragment(self) -> None:
        """Write the database file again without its free pages."""
        await self._post("maintenance/defragment", {})

    async def get(self, key: str, *, revision: int = 0) -> tuple[bytes, int]:
        """Return a value and the revision of its creation, by default the newest one. Raises KeyError."""
        found = await self._post("kv/range", {"key": _encode(key.encode()), "revision": str(revision)})
        if not found.get("kvs"):
            raise KeyError(key)
        return base64.b64decode(found["kvs"][0]["value"]), int(found["kvs"][0]["create_revision"])

    async def put(self, values: Mapping[str, bytes]) -> None:
        """Write at most 128 values in one transaction."""
        operations = [
            {"request_put": {"key": _encode(key.encode()), "value": _encode(value)}} for key, value in values.items()
        ]
        await self._post("kv/txn", {"success": operations})

    async def delete(self, prefix: str) -> None:
        """Delete all values whose keys begin so."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        await self._post("kv/deleterange", {"key": _encode(prefix.encode()), "range_end": _encode(end.encode())})

    async def read_live_heap(self) -> float:
        """Return the MB of live objects after a garbage collection."""
        collection = self.session.get(self.url + PROFILE, params=COLLECT)
        async with within(SECONDS, "a garbage collection of etcd"), collection as response:
            response.raise_for_status()
            await response.read()
        async with within(SECONDS, "etcd's metrics"), self.session.get(self.url + METRICS) as response:
            return read_heap(await response.text())

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        async with self.session.post(f"{self.url}/v3/{path}", json=body, timeout=timeout) as response:
            found: dict[str, Any] = await response.json(content_type=None)
            if response.status != 200:
                raise RuntimeError(f"etcd answered {response.status} to {path}: {found}")
            return found


@dataclass(frozen=True, kw_only=True)
class StoredCopies:
    """Copies of one custom object, in each of its states: when it was created, and now.

    They are written as the API server would write them, but many at a time. It learns of them from its watches of etcd,
    as of the writes of another API server.
    """

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
