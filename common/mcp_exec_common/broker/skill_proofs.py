"""Skills and their proofs: new objects with a proof of their author or release, and reviews that are proven."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mcp_exec_api.constants import (
    ACCOUNT_PREFIX,
    ANNOTATION_CALLER_PROOF,
    ANNOTATION_CREATED,
    API_VERSION,
    LABEL_MANAGED_BY,
    LABEL_SHIPPED,
    LABEL_SKILL,
    MANAGED_BY,
)
from mcp_exec_api.meta import micro_time
from mcp_exec_api.skill import ReviewDecision, SkillSpec, SkillState, content_digest, object_name
from mcp_exec_common.broker.attestations import CLAIMED, Attestor, build_creator
from mcp_exec_common.kube.objects import Object


def build_skill(spec: SkillSpec, *, namespace: str, author: str, attestor: Attestor, moment: datetime) -> Object:
    """Return the manifest of a new draft of a proven caller."""
    labels, annotations = build_creator(author)
    manifest = _build(spec, namespace, labels, moment)
    if labels:
        annotations = {ANNOTATION_CALLER_PROOF: attestor.sign_author(manifest)}
    manifest["metadata"]["annotations"] |= annotations
    return manifest


def build_shipped(spec: SkillSpec, *, namespace: str, attestor: Attestor, moment: datetime) -> Object:
    """Return the manifest of a skill that the release brings. It is approved by its proof."""
    manifest = _build(spec, namespace, {LABEL_SHIPPED: "true"}, moment)
    manifest["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = attestor.sign_shipped(manifest)
    return manifest


def _build(spec: SkillSpec, namespace: str, labels: dict[str, str], moment: datetime) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "Skill",
        "metadata": {
            "name": object_name(spec.name, spec.version),
            "namespace": namespace,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_SKILL: spec.name, **labels},
            "annotations": {ANNOTATION_CREATED: micro_time(moment)},
        },
        "spec": spec.to_api(),
    }


SHIPPED_AUTHOR: Final = "release:mcp-exec"
"""Author of the skills that the release brings. No caller has such a name: labels allow no colon."""
_MAX_REVIEWS: Final = 100_000
_STATES = {ReviewDecision.APPROVE: SkillState.APPROVED, ReviewDecision.DEPRECATE: SkillState.DEPRECATED}


@dataclass(frozen=True, kw_only=True)
class SkillReading:
    """What holds for a skill, whoever wrote its object."""

    state: SkillState
    author: str
    """Caller who saved it; `claimed:` precedes an unproven name; empty if nothing says who created it; SHIPPED_AUTHOR
    if the release brought it."""
    digest: str
    """Digest of its content."""
    reviewed_by: str | None = None
    reviewed_at: str | None = None
    unproven: str = ""
    """What its object says without a proof: it may be forged, or the key that proved it was withdrawn."""

    @property
    def is_shipped(self) -> bool:
        """Whether the release brought it."""
        return self.author == SHIPPED_AUTHOR


def is_from_release(author: str) -> bool:
    """Return whether gateway or operator wrote a skill for its proven author. An account that creates it past the
    gateway chooses its number, and may be another name of an approver."""
    return bool(author) and not author.startswith((CLAIMED, ACCOUNT_PREFIX))


def is_numbered_here(state: str, author: str) -> bool:
    """Return whether a version's number counts for the next one: an approver has decided on it, or it is numbered by
    gateway or operator."""
    return state != SkillState.DRAFT or is_from_release(author)


def read_skill(skill: Object, *, attestor: Attestor) -> SkillReading:
    """Return what holds for a skill. Those that the release brings need no review.

    A review that is older than the last one that the operator recorded is ignored: somebody wrote it again.
    """
    spec, status = skill.get("spec") or {}, skill.get("status") or {}
    is_shipped = attestor.is_shipped(skill)
    digest, author = content_digest(spec), SHIPPED_AUTHOR if is_shipped else attestor.read_author(skill)
    if author.startswith(ACCOUNT_PREFIX) and status.get("state") and status.get("author") != author:
        author = CLAIMED + author  # the account was written before admission policies protected it
    review, recorded = spec.get("review"), str(status.get("reviewedAt") or "")
    unproven = _list_unproven(skill, author, is_shipped=is_shipped)
    if isinstance(review, dict) and attestor.is_proven_review(review, uid=skill["metadata"]["uid"], digest=digest):
        at = str(review["at"])
        if _is_not_older(at, recorded):
            state = _STATES[ReviewDecision(review["decision"])]
            by = str(review.get("by") or "")
            return SkillReading(
                state=state, author=author, digest=digest, reviewed_by=by, reviewed_at=at, unproven=", ".join(unproven)
            )
    elif isinstance(review, dict):
        unproven.append(f"the decision {str(review.get('decision'))[:20]!r} by {str(review.get('by'))[:100]!r}")
    is_withdrawn = recorded and status.get("state") == SkillState.DEPRECATED and status.get("digest") == digest
    state = SkillState.APPROVED if is_shipped else SkillState.DRAFT
    state = SkillState.DEPRECATED if is_withdrawn else state
    known = status.get("reviewedBy") if is_withdrawn else None
    return SkillReading(
        state=state,
        author=author,
        digest=digest,
        reviewed_by=known,
        reviewed_at=recorded or None,
        unproven=", ".join(unproven),
    )


def _list_unproven(skill: Object, author: str, *, is_shipped: bool) -> list[str]:
    labels = skill["metadata"].get("labels") or {}
    found = [f"its author {author.removeprefix(CLAIMED)}"] if author.startswith(CLAIMED) else []
    return [*found, "that the release brings it"] if labels.get(LABEL_SHIPPED) and not is_shipped else found


@dataclass(kw_only=True, eq=False)
class LatestReviews:
    """Newest review of each skill that this process has seen.

    The operator's status has it too, but a moment later: somebody could write an earlier review back before.
    """

    attestor: Attestor
    _by_uid: dict[str, SkillReading] = field(default_factory=dict)

    def read(self, skill: Object) -> SkillReading:
        """Return what holds for a skill, as `read_skill` does."""
        uid, status = str(skill["metadata"]["uid"]), skill.get("status") or {}
        known = self._by_uid.pop(uid, None)
        if known is not None and not _is_not_older(str(status.get("reviewedAt") or ""), known.reviewed_at or ""):
            seen = {"state": known.state, "author": known.author, "digest": known.digest}
            reviewed = {"reviewedBy": known.reviewed_by, "reviewedAt": known.reviewed_at}
            skill = {**skill, "status": {**status, **seen, **reviewed}}
        reading = read_skill(skill, attestor=self.attestor)
        newest = reading if known is None or reading.reviewed_at != known.reviewed_at else known
        if newest.reviewed_at:
            self._by_uid[uid] = newest
            while len(self._by_uid) > _MAX_REVIEWS:
                del self._by_uid[next(iter(self._by_uid))]
        return reading

    def forget(self, uid: str) -> None:
        """Forget a skill that was deleted."""
        self._by_uid.pop(uid, None)


def _is_not_older(at: str, recorded: str) -> bool:
    try:
        return not recorded or datetime.fromisoformat(at) >= datetime.fromisoformat(recorded)
    except (ValueError, TypeError):
        return False
