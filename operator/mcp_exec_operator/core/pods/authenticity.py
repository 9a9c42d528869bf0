"""Which pods an operator has created, and which of them somebody has altered since. No I/O.

Labels prove nothing: whoever may create pods may set them. A running operator knows the uids of the pods that it
created. It recognizes those of an earlier operator by their seal. This annotation can be made only with the release's
key. It is worthless on another pod, and on the same pod after a change of what confines it.
"""

import hmac
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.constants import ANNOTATION_OWNER_SEAL, ANNOTATION_SEAL, LABEL_OWNER, LABEL_STATE
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.tokens import (
    owner_seal,
    pod_seal,
    read_token_digest,
    supervisor_token,
    token_digest,
)
from mcp_exec_operator.core.pods.integrity import ChangeableParts, digest_confinement, find_alterations
from mcp_exec_operator.core.pods.manifest import KEEP_ON_NODE, PoolIdentity, owners_of_pod
from mcp_exec_operator.core.pods.pod import Pod, PodState

log = logging.getLogger(__name__)

_REPORT_SECONDS: Final = 600.0
"""How long the pool's condition names an altered pod, which itself is deleted at once."""
_MAX_PODS: Final = 16
"""Altered pods that a pool names."""


@dataclass(frozen=True, kw_only=True)
class PodAuthenticator:
    """Recognizes pods by the release's keys."""

    keys: SandboxKeys

    def has_token_digest(self, pod: Object) -> bool:
        """Return whether the pod has the digest of its token. It is secret until the pod exists, and then public."""
        meta = pod["metadata"]
        return self.accepts(meta["namespace"], meta["name"], digest=read_token_digest(pod))

    def accepts(self, namespace: str, pod: str, *, digest: str) -> bool:
        """Return whether the digest is that of the pod's token, derived from a key that is accepted now."""
        tokens = [supervisor_token(key=key, namespace=namespace, pod=pod) for key in self.keys]
        return any(hmac.compare_digest(digest.encode(), token_digest(token).encode()) for token in tokens)

    def claims_pool(self, pod: Object, pool_uid: str) -> bool:
        """Return whether the pool controls the pod and the pod has its digest, as all pods of operators have."""
        owners = pod["metadata"].get("ownerReferences") or ()
        controllers = [owner.get("uid") for owner in owners if owner.get("controller")]
        return bool(pool_uid) and controllers == [pool_uid] and self.has_token_digest(pod)

    def is_sealed(self, pod: Object) -> bool:
        """Return whether an operator created this very pod, and it is as it was when the operator verified it."""
        seal = str((pod["metadata"].get("annotations") or {}).get(ANNOTATION_SEAL) or "")
        meta, digest = pod["metadata"], digest_confinement(pod)
        return any(hmac.compare_digest(seal.encode(), _seal(key, meta, digest).encode()) for key in self.keys)

    def build_seal_patch(self, pod: Object, pool: PoolIdentity) -> Object:
        """Return the merge patch that seals a pod and renews its owners. It fails for another pod of that name."""
        return {
            "metadata": {
                "uid": pod["metadata"]["uid"],
                "annotations": {ANNOTATION_SEAL: _seal(self.keys.signing, pod["metadata"], digest_confinement(pod))},
                "ownerReferences": owners_of_pod(pool),
            }
        }

    def build_owner_patch(self, pod: Object, pool: PoolIdentity, *, owner: str) -> Object:
        """Return the merge patch that seals a pod and names the only owner that it serves from now on.

        It takes the place of the patch of a busy pod, so that no execution writes to the pod.
        """
        patch = self.build_seal_patch(pod, pool)
        metadata = patch["metadata"]
        metadata["labels"] = {LABEL_OWNER: owner, LABEL_STATE: "owned"}
        seal = _seal_owner(self.keys.signing, pod["metadata"], owner)
        metadata["annotations"] |= {ANNOTATION_OWNER_SEAL: seal, **KEEP_ON_NODE}
        return patch

    def read_owner(self, pod: Object) -> str:
        """Return the digest of the only owner that an operator lets the pod serve; empty if there is none."""
        meta = pod["metadata"]
        owner = str((meta.get("labels") or {}).get(LABEL_OWNER) or "")
        proof = str((meta.get("annotations") or {}).get(ANNOTATION_OWNER_SEAL) or "")
        seals = [_seal_owner(key, meta, owner) for key in self.keys] if owner else []
        return owner if any(hmac.compare_digest(proof.encode(), seal.encode()) for seal in seals) else ""


def _seal_owner(key: bytes, meta: Object, owner: str) -> str:
    return owner_seal(key=key, namespace=meta["namespace"], pod=meta["name"], uid=meta["uid"], owner=owner)


def _seal(key: bytes, meta: Object, digest: str) -> str:
    return pod_seal(key=key, namespace=meta["namespace"], pod=meta["name"], uid=meta["uid"], digest=digest)


@dataclass(kw_only=True, eq=False)
class Alterations:
    """What was changed in pods of one pool."""

    pool: str
    clock: Callable[[], float] = monotonic
    _found: dict[str, tuple[tuple[str, ...], float]] = field(default_factory=dict)
    """By the name of the pod, the changed fields and when they were found."""

    def inspect(self, pod: Pod, item: Object) -> bool:
        """Return whether a pod is as it was when it was verified or first seen. Costs a few comparisons."""
        if pod.state is PodState.TERMINATING:
            return True
        parts, before = ChangeableParts.of(item), pod.trust.parts
        changed = find_alterations(before, parts) if before is not None else ()
        if changed:
            self.note(pod, changed)
            return False
        pod.trust.parts = parts  # which frees the older object
        return True

    def note(self, pod: Pod, changed: tuple[str, ...]) -> None:
        """Record that a pod was altered. It is never used again."""
        pod.trust.verified = False
        fields = {"pool": self.pool, "pod": pod.name}
        log.warning("pod %s is deleted, because somebody changed %s", pod.name, ", ".join(changed), extra=fields)
        if len(self._found) < _MAX_PODS or pod.name in self._found:
            self._found[pod.name] = changed, self.clock()

    def expire(self, now: float) -> float | None:
        """Drop what was reported for long enough. Return when the next report ends, or None."""
        self._found = {name: each for name, each in self._found.items() if each[1] + _REPORT_SECONDS > now}
        return min((at + _REPORT_SECONDS for _, at in self._found.values()), default=None)

    def describe(self) -> str:
        """Return the altered pods and their fields, or an empty text."""
        return "; ".join(f"{name}: {', '.join(changed)}" for name, (changed, _) in sorted(self._found.items()))
