"""Executions by Idempotency-Key, to detect a key that comes again with another name."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_gateway.executions.naming import ANNOTATION_IDEMPOTENCY

_MAX_KEYS: Final = 50_000
_DIGEST_LENGTH: Final = 64


@dataclass(kw_only=True)
class RequestKeys:
    """Name of the execution that belongs to each Idempotency-Key, as far as this replica has seen it.

    The name alone makes a retry of the same request safe, at all replicas. This cache also finds a key that is used
    again with another name. It keeps the newest keys; of a dropped one a reuse with another name is not noticed.
    """

    _names: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict, init=False)
    """Names by namespace and digest of the key."""

    def observe(self, execution: Object, *, deleted: bool) -> None:
        """Take in an execution."""
        digest = (execution["metadata"].get("annotations") or {}).get(ANNOTATION_IDEMPOTENCY)
        if not isinstance(digest, str) or len(digest) != _DIGEST_LENGTH:
            return
        key = object_key(execution)
        if not deleted:
            self.add(key, digest)
        elif self._names.get((key[0], digest)) == key[1]:
            del self._names[key[0], digest]

    def add(self, key: ObjectKey, digest: str) -> bool:
        """Take in an execution that exists or is about to. Return whether its key was new: the first name counts."""
        is_new = (key[0], digest) not in self._names
        self._names.setdefault((key[0], digest), key[1])
        if len(self._names) > _MAX_KEYS:
            self._names.popitem(last=False)
        return is_new

    def discard(self, key: ObjectKey, digest: str) -> None:
        """Take back an execution that was not created."""
        if self._names.get((key[0], digest)) == key[1]:
            del self._names[key[0], digest]

    def find(self, namespace: str, digest: str) -> str | None:
        """Return the name of the execution that belongs to a key."""
        return self._names.get((namespace, digest))

    def count(self) -> int:
        """Return the number of keys."""
        return len(self._names)
