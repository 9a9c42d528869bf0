"""Attestations: proofs that the gateway wrote the caller of an execution, or who decided on an approval.

Labels, annotations and specs can be written by anyone who may create or patch executions. A value without a proof is
only claimed, and is recorded as such.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF, ANNOTATION_CREATED, LABEL_CALLER

CLAIMED: Final = "claimed:"
"""Prefix of a name without a proof. No API key and no ServiceAccount has a name that starts so."""
UNKNOWN: Final = "unknown, through the Kubernetes API"
"""Who decided on an approval, if the decision names nobody."""
_KEY_PREFIX: Final = b"mcp-exec attestations:"
_MAX_AGE: Final = timedelta(minutes=5)
"""Longest time between the proof and the creation: a proof cannot be used again for a later execution."""


@dataclass(frozen=True, kw_only=True)
class Attestor:
    """Signs and verifies attestations, with a key derived from the release's `key`."""

    key: bytes

    def sign_caller(self, execution: Mapping[str, Any]) -> str:
        """Return the proof of a new execution's caller, bound to its name, time of creation, code and rights."""
        spec = execution.get("spec") or {}
        code = str(spec.get("code") or "").encode(errors="surrogatepass")
        pool = (spec.get("poolRef") or {}).get("name")
        content = (hashlib.sha256(code).hexdigest(), spec.get("user"), spec.get("tools") or [], pool)
        digest = hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
        return self._prove_caller(execution["metadata"], digest)

    def read_caller(self, execution: Mapping[str, Any]) -> str:
        """Return the execution's caller, `claimed:` and the name if there is no proof, or "" if it names none."""
        return _name_caller(execution["metadata"], proof=self.sign_caller(execution))

    def read_listed_caller(self, metadata: Mapping[str, Any]) -> str:
        """Return the caller of an execution of which a list shows the metadata alone, as `read_caller` does.

        Without code and rights it is unproven that they are those of the creation. Use it for counts and views only.
        """
        digest, _, _ = _read_proof(metadata).partition(".")
        return _name_caller(metadata, proof=self._prove_caller(metadata, digest))

    def sign_decision(self, decision: Mapping[str, Any], *, uid: str) -> str:
        """Return the proof of a decision on an approval of the execution with this uid."""
        return self._sign("decision", uid, *(decision.get(name) for name in ("id", "decision", "by", "comment")))

    def read_approver(self, decision: Mapping[str, Any], *, uid: str) -> str:
        """Return who decided, `claimed:` and the name if there is no proof, or UNKNOWN if the decision names nobody."""
        by = str(decision.get("by") or "")
        if not by:
            return UNKNOWN
        proof = str(decision.get("proof") or "")
        is_proven = hmac.compare_digest(proof.encode(), self.sign_decision(decision, uid=uid).encode())
        return by if is_proven else CLAIMED + by

    def _prove_caller(self, metadata: Mapping[str, Any], digest: str) -> str:
        """Return the digest of code and rights, and its signature together with name, caller and creation."""
        signature = self._sign(
            "caller",
            metadata.get("namespace"),
            metadata.get("name"),
            (metadata.get("labels") or {}).get(LABEL_CALLER),
            (metadata.get("annotations") or {}).get(ANNOTATION_CREATED),
            digest,
        )
        return f"{digest}.{signature}"

    def _sign(self, *content: object) -> str:
        text = json.dumps(content, separators=(",", ":")).encode()
        return hmac.new(_KEY_PREFIX + self.key, text, hashlib.sha256).hexdigest()


def _name_caller(metadata: Mapping[str, Any], *, proof: str) -> str:
    caller = str((metadata.get("labels") or {}).get(LABEL_CALLER) or "")
    if not caller:
        return ""
    is_proven = hmac.compare_digest(_read_proof(metadata).encode(), proof.encode())
    return caller if is_proven and _is_recent(metadata, metadata.get("annotations") or {}) else CLAIMED + caller


def _read_proof(metadata: Mapping[str, Any]) -> str:
    return str((metadata.get("annotations") or {}).get(ANNOTATION_CALLER_PROOF) or "")


def _is_recent(metadata: Mapping[str, Any], annotations: Mapping[str, Any]) -> bool:
    try:
        created = datetime.fromisoformat(str(metadata.get("creationTimestamp")))
        return abs(created - datetime.fromisoformat(str(annotations.get(ANNOTATION_CREATED)))) <= _MAX_AGE
    except (ValueError, TypeError, OverflowError):
        return False
