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
from mcp_exec_api.skill import content_digest
from mcp_exec_tools.stored_json import to_stored_json

CLAIMED: Final = "claimed:"
"""Prefix of a name without a proof. No API key and no ServiceAccount has a name that starts so."""
UNKNOWN: Final = "unknown, through the Kubernetes API"
"""Who decided on an approval, if the decision names nobody."""
_KEY_PREFIX: Final = b"mcp-exec attestations:"
MAX_PROOF_AGE: Final = timedelta(minutes=5)
"""Longest time between a proof and the creation of its object, by the clocks of gateway and API server.

Until then a proof also fits an equal object that is created after the first one was deleted. The operator remembers
the proofs of executions for that long, so that each serves one execution.
"""


@dataclass(frozen=True, kw_only=True)
class Attestor:
    """Signs and verifies attestations, with a key derived from the release's `key`."""

    key: bytes

    def sign_caller(self, execution: Mapping[str, Any]) -> str:
        """Return the proof of a new execution's caller, bound to name, creation, and all that says what it does.

        It covers code, skills, context, user, tools, pool, session and workspace.
        """
        spec = execution.get("spec") or {}
        code = str(spec.get("code") or "").encode(errors="surrogatepass")
        pool = (spec.get("poolRef") or {}).get("name")
        content: tuple[object, ...] = (
            hashlib.sha256(code).hexdigest(),
            spec.get("user"),
            spec.get("tools") or [],
            pool,
        )
        if spec.get("skillRef") or spec.get("skills"):
            content = (*content, spec.get("skillRef"), spec.get("skills") or [])
        if spec.get("session"):  # else the proof is that of earlier releases
            content = (*content, {"session": spec["session"]})
        if spec.get("workspace"):
            content = (*content, {"workspace": spec["workspace"]})
        if spec.get("context"):
            content = (*content, {"context": hashlib.sha256(to_stored_json(spec["context"])).hexdigest()})
        # the API server returns the keys of objects in an order of its own
        text = json.dumps(content, separators=(",", ":"), sort_keys=True)
        return self._prove_caller(execution["metadata"], hashlib.sha256(text.encode()).hexdigest())

    def read_caller(self, execution: Mapping[str, Any]) -> str:
        """Return the execution's caller, `claimed:` and the name if there is no proof, or "" if it names none."""
        return _name_caller(execution["metadata"], proof=self.sign_caller(execution))

    def read_listed_caller(self, metadata: Mapping[str, Any]) -> str:
        """Return the caller of an execution that a list shows only the metadata of, as `read_caller` does.

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

    def sign_author(self, skill: Mapping[str, Any]) -> str:
        """Return the proof of a new skill's author, bound to its name, time of creation and content."""
        return self._prove_caller(skill["metadata"], content_digest(skill.get("spec") or {}), kind="author")

    def read_author(self, skill: Mapping[str, Any]) -> str:
        """Return the skill's author, `claimed:` and the name if there is no proof, or "" if it names none."""
        return _name_caller(skill["metadata"], proof=self.sign_author(skill))

    def sign_shipped(self, skill: Mapping[str, Any]) -> str:
        """Return the proof that the release brings a new skill, bound to its name, time of creation and content."""
        return self._prove_caller(skill["metadata"], content_digest(skill.get("spec") or {}), kind="shipped")

    def is_shipped(self, skill: Mapping[str, Any]) -> bool:
        """Return whether the release brought the skill with this content."""
        metadata = skill["metadata"]
        is_proven = hmac.compare_digest(_read_proof(metadata).encode(), self.sign_shipped(skill).encode())
        return is_proven and _is_recent(metadata, metadata.get("annotations") or {})

    def sign_review(self, review: Mapping[str, Any], *, uid: str, digest: str) -> str:
        """Return the proof of a review of the skill with this uid and this digest of its content."""
        return self._sign("review", uid, digest, *(review.get(name) for name in ("decision", "by", "at", "comment")))

    def is_proven_review(self, review: Mapping[str, Any], *, uid: str, digest: str) -> bool:
        """Return whether the gateway wrote the review for this skill and this content."""
        proof = str(review.get("proof") or "")
        return hmac.compare_digest(proof.encode(), self.sign_review(review, uid=uid, digest=digest).encode())

    def _prove_caller(self, metadata: Mapping[str, Any], digest: str, *, kind: str = "caller") -> str:
        """Return the digest of code and rights, and its signature together with name, caller and creation."""
        signature = self._sign(
            kind,
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
        return abs(created - datetime.fromisoformat(str(annotations.get(ANNOTATION_CREATED)))) <= MAX_PROOF_AGE
    except (ValueError, TypeError, OverflowError):
        return False
