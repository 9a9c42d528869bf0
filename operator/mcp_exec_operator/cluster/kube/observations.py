"""Which observations count: not one that is older than another, nor a second execution with a caller's proof.

Lists and answers may arrive after the watch events of later changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from mcp_exec_api.constants import ACCOUNT_PREFIX, ANNOTATION_CALLER_PROOF
from mcp_exec_api.meta import now
from mcp_exec_common.broker.attestations import CLAIMED, MAX_PROOF_AGE, Attestor
from mcp_exec_common.kube.objects import Object

_STRIPPED: Final = ("namespace", "name", "uid", "resourceVersion", "labels")
_MAX_DELETED: Final = 10_000
_KEPT: Final = 2 * MAX_PROOF_AGE
"""How long a proof is remembered. It is valid for no object that is created later: clocks of gateway and API server may
differ by MAX_PROOF_AGE in either direction."""
_SIGNATURE: Final = 32
"""Last characters of a proof that are remembered: 128 bits of its signature."""
_MAX_REPEATED: Final = 10_000


def strip(item: Object) -> Object:
    """Return what the report of a deletion needs that a watch missed. Caches have everything else that is needed."""
    metadata = item["metadata"]
    return {"metadata": {name: metadata[name] for name in _STRIPPED if name in metadata}}


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


@dataclass(kw_only=True, eq=False)
class CallerProofs:
    """Reads callers as `Attestor` does, but only for the first uid of each proof.

    A proof is bound to the name of an execution and not to its uid, which is unknown when the gateway writes it.
    Whoever may create executions could otherwise run another caller's execution again after its deletion.
    """

    attestor: Attestor
    clock: Callable[[], datetime] = now
    _first: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    """Uid of the first execution by the end of its proof, and when it was seen, oldest first."""
    _repeated: dict[str, None] = field(default_factory=dict)
    """Uids of further executions, which are read again at their end."""

    def __len__(self) -> int:
        """Return the number of proofs that are remembered."""
        return len(self._first)

    def read_caller(self, execution: Object) -> str:
        """Return the execution's caller, `claimed:` and the name without a proof of its own, or "" without a name."""
        return self._check(execution["metadata"], self.attestor.read_caller(execution))

    def read_listed_caller(self, metadata: Mapping[str, Any]) -> str:
        """Return the caller by metadata, as `Attestor.read_listed_caller` does."""
        return self._check(metadata, self.attestor.read_listed_caller(metadata))

    def _check(self, metadata: Mapping[str, Any], caller: str) -> str:
        if not caller or caller.startswith((CLAIMED, ACCOUNT_PREFIX)):
            return caller  # an account is that of each object, and needs no proof
        self._forget_old()
        uid, proof = str(metadata["uid"]), str(metadata["annotations"][ANNOTATION_CALLER_PROOF])[-_SIGNATURE:]
        first, _ = self._first.setdefault(proof, (uid, self.clock()))
        if first != uid:
            self._repeated[uid] = None
            if len(self._repeated) > _MAX_REPEATED:
                del self._repeated[next(iter(self._repeated))]
        return CLAIMED + caller if uid in self._repeated else caller

    def _forget_old(self) -> None:
        oldest = self.clock() - _KEPT
        while self._first and (proof := next(iter(self._first))) and self._first[proof][1] < oldest:
            del self._first[proof]
