"""Attestations: proofs that the gateway wrote the caller of an execution, or who decided on an approval.

Labels, annotations and specs can be written by anyone who may create or patch executions. A value without a proof is
only claimed, and is recorded as such.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from mcp_exec_api.constants import (
    ACCOUNT_PREFIX,
    ANNOTATION_CALLER_PROOF,
    ANNOTATION_CREATED,
    ANNOTATION_CREATED_BY,
    LABEL_CALLER,
)
from mcp_exec_api.skill import content_digest
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_tools.stored_json import to_stored_json

CLAIMED: Final = "claimed:"
"""Prefix of a name without a proof. No API key and no ServiceAccount has a name that starts so."""
_MAX_ACCOUNT: Final = 240
"""Characters of the username of an account that owns something. With its prefixes it fits a column of the records."""
_ANONYMOUS: Final = "system:anonymous"
"""Username of every request without credentials, where the API server accepts such."""
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
    """Signs and verifies attestations, with keys derived from the release's `keys`."""

    keys: SandboxKeys
    accounts_proven: bool = False
    """Whether admission policies force ANNOTATION_CREATED_BY to be the account that created the object. Without them
    anybody can write it."""

    def sign_caller(self, execution: Mapping[str, Any]) -> str:
        """Return the proof of a new execution's caller, bound to name, creation, and all that says what it does.

        It covers code, skills, context, user, tools, pool, session and workspace.
        """
        return self._prove(execution["metadata"], _digest_execution(execution))

    def read_caller(self, execution: Mapping[str, Any]) -> str:
        """Return the execution's caller, `claimed:` and the name if there is no proof, or "" if it names none.

        An account that created it past the gateway is `k8s/USERNAME`.
        """
        return self._name_caller(execution["metadata"], _digest_execution(execution))

    def read_listed_caller(self, metadata: Mapping[str, Any]) -> str:
        """Return the caller of an execution that a list shows only the metadata of, as `read_caller` does.

        Without code and rights it is unproven that they are those of the creation. Use it for counts and views only.
        """
        digest, _, _ = _read_proof(metadata).partition(".")
        return self._name_caller(metadata, digest)

    def sign_decision(self, decision: Mapping[str, Any], *, uid: str) -> str:
        """Return the proof of a decision on an approval of the execution with this uid."""
        return self._sign(_list_decision(decision, uid))

    def read_approver(self, decision: Mapping[str, Any], *, uid: str) -> str:
        """Return who decided, `claimed:` and the name if there is no proof, or UNKNOWN if the decision names nobody."""
        by = str(decision.get("by") or "")
        if not by:
            return UNKNOWN
        proof = str(decision.get("proof") or "")
        return by if self._accepts(proof, _list_decision(decision, uid)) else CLAIMED + by

    def sign_author(self, skill: Mapping[str, Any]) -> str:
        """Return the proof of a new skill's author, bound to its name, time of creation and content."""
        return self._prove(skill["metadata"], content_digest(skill.get("spec") or {}), kind="author")

    def read_author(self, skill: Mapping[str, Any]) -> str:
        """Return the skill's author, `claimed:` and the name if there is no proof, or "" if it names none."""
        return self._name_caller(skill["metadata"], content_digest(skill.get("spec") or {}), kind="author")

    def sign_shipped(self, skill: Mapping[str, Any]) -> str:
        """Return the proof that the release brings a new skill, bound to its name, time of creation and content."""
        return self._prove(skill["metadata"], content_digest(skill.get("spec") or {}), kind="shipped")

    def is_shipped(self, skill: Mapping[str, Any]) -> bool:
        """Return whether the release brought the skill with this content."""
        metadata = skill["metadata"]
        is_proven = self._is_proven(metadata, content_digest(skill.get("spec") or {}), kind="shipped")
        return is_proven and _is_recent(metadata, metadata.get("annotations") or {})

    def sign_review(self, review: Mapping[str, Any], *, uid: str, digest: str) -> str:
        """Return the proof of a review of the skill with this uid and this digest of its content."""
        return self._sign(_list_review(review, uid, digest))

    def is_proven_review(self, review: Mapping[str, Any], *, uid: str, digest: str) -> bool:
        """Return whether the gateway wrote the review for this skill and this content."""
        return self._accepts(str(review.get("proof") or ""), _list_review(review, uid, digest))

    def _prove(self, metadata: Mapping[str, Any], digest: str, *, kind: str = "caller") -> str:
        """Return the digest of code and rights, and its signature together with name, caller and creation."""
        return f"{digest}.{self._sign(_list_creation(metadata, digest, kind))}"

    def _is_proven(self, metadata: Mapping[str, Any], digest: str, *, kind: str = "caller") -> bool:
        """Return whether an object has the proof that `_prove` returns, or returned with an earlier key."""
        proven, _, signature = _read_proof(metadata).partition(".")
        return proven == digest and self._accepts(signature, _list_creation(metadata, digest, kind))

    def _name_caller(self, metadata: Mapping[str, Any], digest: str, *, kind: str = "caller") -> str:
        caller = str((metadata.get("labels") or {}).get(LABEL_CALLER) or "")
        if not caller:
            return self._name_account(metadata)
        is_proven = self._is_proven(metadata, digest, kind=kind)
        return caller if is_proven and _is_recent(metadata, metadata.get("annotations") or {}) else CLAIMED + caller

    def _name_account(self, metadata: Mapping[str, Any]) -> str:
        """Return the account that created the object past the gateway, `claimed:` and the name if nothing proves it."""
        username = str((metadata.get("annotations") or {}).get(ANNOTATION_CREATED_BY) or "")
        if not username:
            return ""
        is_whole = len(username) <= _MAX_ACCOUNT and username.isprintable()
        if self.accounts_proven and is_whole and username != _ANONYMOUS:
            return ACCOUNT_PREFIX + username
        shown = "".join(each if each.isprintable() else "." for each in username[:_MAX_ACCOUNT])
        return CLAIMED + ACCOUNT_PREFIX + shown

    def _sign(self, content: Sequence[object]) -> str:
        return _sign(self.keys.signing, content)

    def _accepts(self, signature: str, content: Sequence[object]) -> bool:
        return any(hmac.compare_digest(signature.encode(), _sign(key, content).encode()) for key in self.keys)


_PROVING: Final = (ANNOTATION_CREATED, ANNOTATION_CALLER_PROOF, ANNOTATION_CREATED_BY)


def select_proof(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `Attestor.read_listed_caller` reads of an object's metadata. Keep it only of a proven caller."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return {
        **{name: metadata.get(name) for name in ("namespace", "name", "creationTimestamp")},
        "labels": {LABEL_CALLER: labels.get(LABEL_CALLER)},
        "annotations": {name: annotations.get(name) for name in _PROVING},
    }


def drop_claim(caller: str) -> str:
    """Return a caller as `Attestor` reads it if it is proven, else an empty text: nobody."""
    return "" if caller.startswith(CLAIMED) else caller


def build_creator(caller: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return labels and annotations of an object that the release creates for a proven caller. A label needs a proof,
    an account none: only the release may write the account of others."""
    if caller.startswith(ACCOUNT_PREFIX):
        return {}, {ANNOTATION_CREATED_BY: caller.removeprefix(ACCOUNT_PREFIX)}
    return {LABEL_CALLER: caller}, {}


def _sign(key: bytes, content: Sequence[object]) -> str:
    text = json.dumps(content, separators=(",", ":")).encode()
    return hmac.new(_KEY_PREFIX + key, text, hashlib.sha256).hexdigest()


def _list_creation(metadata: Mapping[str, Any], digest: str, kind: str) -> Sequence[object]:
    return (
        kind,
        metadata.get("namespace"),
        metadata.get("name"),
        (metadata.get("labels") or {}).get(LABEL_CALLER),
        (metadata.get("annotations") or {}).get(ANNOTATION_CREATED),
        digest,
    )


def _list_decision(decision: Mapping[str, Any], uid: str) -> Sequence[object]:
    return ("decision", uid, *(decision.get(name) for name in ("id", "decision", "by", "comment")))


def _list_review(review: Mapping[str, Any], uid: str, digest: str) -> Sequence[object]:
    return ("review", uid, digest, *(review.get(name) for name in ("decision", "by", "at", "comment")))


def _digest_execution(execution: Mapping[str, Any]) -> str:
    """Return the digest of all that says what an execution does."""
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
    if spec.get("session"):
        content = (*content, {"session": spec["session"]})
    if spec.get("workspace"):
        content = (*content, {"workspace": spec["workspace"]})
    if spec.get("context"):
        content = (*content, {"context": hashlib.sha256(to_stored_json(spec["context"])).hexdigest()})
    # the API server returns the keys of objects in an order of its own
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _read_proof(metadata: Mapping[str, Any]) -> str:
    return str((metadata.get("annotations") or {}).get(ANNOTATION_CALLER_PROOF) or "")


def _is_recent(metadata: Mapping[str, Any], annotations: Mapping[str, Any]) -> bool:
    try:
        created = datetime.fromisoformat(str(metadata.get("creationTimestamp")))
        return abs(created - datetime.fromisoformat(str(annotations.get(ANNOTATION_CREATED)))) <= MAX_PROOF_AGE
    except (ValueError, TypeError, OverflowError):
        return False
