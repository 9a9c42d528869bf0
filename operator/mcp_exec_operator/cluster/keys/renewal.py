"""Renews what outlasts every ordinary rotation: the proofs of skills and sessions, which have no time limit.

All else that the sandbox key has signed ends before the former key goes, or is replaced.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF, SESSIONS, SKILLS
from mcp_exec_api.skill import content_digest
from mcp_exec_common.broker.attestations import CLAIMED, Attestor
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
Patch = Object


@dataclass(frozen=True, kw_only=True)
class ProofRenewer:
    """Signs proofs of a former key with the signing one."""

    kube: KubeClient
    attestor: Attestor
    before: datetime | None
    """Only what was made until then is renewed; None for all."""
    namespaces: Sequence[str]
    metrics: Metrics

    async def renew_all(self) -> bool:
        """Renew all proofs in the namespaces. Return whether none of a former key is left in them."""
        complete = True
        for namespace in self.namespaces:
            for resource, build in _KINDS.items():
                complete &= await self._renew(namespace, resource, build)
        return complete

    async def _renew(self, namespace: str, resource: str, build: "_Build") -> bool:
        path = custom_resource_path(resource, namespace=namespace)
        patches: dict[str, Patch] = {}

        def take(item: Object) -> None:
            if patch := self._build(item, build):
                patches[item["metadata"]["name"]] = patch

        try:
            await self.kube.scan(path, take)
        except ApiError as error:
            log.warning("the proofs of %s can't be renewed: %s", resource, error, extra={"namespace": namespace})
            return error.code == 404
        written = [await self._write(namespace, resource, name, patch, build) for name, patch in patches.items()]
        return all(written)

    async def _write(self, namespace: str, resource: str, name: str, patch: Patch, build: "_Build") -> bool:
        """Write a patch. After a conflict, it is built again: the status of a skill changes with each use."""
        path = custom_resource_path(resource, namespace=namespace, name=name)
        for attempt in range(1, _ATTEMPTS + 1):
            self.metrics.writes.labels("proof").inc()
            try:
                await self.kube.patch(path, patch)
                return True
            except ApiError as error:
                if error.code == 409 and attempt < _ATTEMPTS:
                    item = await self.kube.find(path)
                    patch = {} if item is None else self._build(item, build)
                    if not patch:
                        return True
                    continue
                log.warning("the proof of %s was not renewed: %s", name, error, extra={"namespace": namespace})
                return error.code == 404
        return False

    def _build(self, item: Object, build: "_Build") -> Patch:
        patch = build(item, self.attestor, self.before)
        if patch:  # a newer object has perhaps another review
            patch.setdefault("metadata", {})["resourceVersion"] = item["metadata"]["resourceVersion"]
        return patch


def renew_skill(skill: Object, attestor: Attestor, before: datetime | None = None) -> Patch:
    """Return the patch of a skill whose proofs are of a former key; empty if there is none."""
    patch: Patch = {}
    author = attestor.read_author(skill)
    is_due = _was_made(skill["metadata"].get("creationTimestamp"), before)
    if is_due and attestor.is_shipped(skill):
        patch |= _build_patch(skill, attestor.sign_shipped(skill))
    elif is_due and author and not author.startswith(CLAIMED):
        patch |= _build_patch(skill, attestor.sign_author(skill))
    spec, uid = skill.get("spec") or {}, skill["metadata"]["uid"]
    review, digest = spec.get("review") or {}, content_digest(spec)
    if _was_made(review.get("at"), before) and attestor.is_proven_review(review, uid=uid, digest=digest):
        proof = attestor.sign_review(review, uid=uid, digest=digest)
        if proof != review.get("proof"):
            patch["spec"] = {"review": {"proof": proof}}
    return patch


def renew_session(session: Object, attestor: Attestor, before: datetime | None = None) -> Patch:
    """Return the patch of a session whose proof is of a former key; empty if there is none."""
    caller = attestor.read_caller(session)
    is_due = caller and not caller.startswith(CLAIMED) and _was_made(session["metadata"]["creationTimestamp"], before)
    return _build_patch(session, attestor.sign_caller(session)) if is_due else {}


def _was_made(at: object, before: datetime | None) -> bool:
    """Return whether something was made until then. The API server writes when an object was, and a review says it."""
    try:
        return before is None or datetime.fromisoformat(str(at)) <= before
    except (ValueError, TypeError):
        return False


def _build_patch(item: Object, proof: str) -> Patch:
    if (item["metadata"].get("annotations") or {}).get(ANNOTATION_CALLER_PROOF) == proof:
        return {}
    return {"metadata": {"annotations": {ANNOTATION_CALLER_PROOF: proof}}}


_Build = Callable[[Object, Attestor, datetime | None], Patch]
_KINDS: Final[dict[str, _Build]] = {SKILLS: renew_skill, SESSIONS: renew_session}
