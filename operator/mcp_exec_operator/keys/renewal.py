"""Renews what outlasts every rotation: the proofs of skills and sessions, which have no time limit.

All else that the sandbox key has signed ends before the former key goes, or is replaced.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF, SESSIONS, SKILLS
from mcp_exec_api.skill import content_digest
from mcp_exec_common.broker.attestations import CLAIMED, Attestor
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

Patch = Object


@dataclass(frozen=True, kw_only=True)
class ProofRenewer:
    """Signs proofs of a former key with the signing one."""

    kube: KubeClient
    attestor: Attestor
    namespaces: Sequence[str]
    metrics: Metrics

    async def renew_all(self) -> bool:
        """Renew all proofs in the served namespaces. Return whether none of a former key is left.

        A namespace that the operator can't read has none, since nothing in it works.
        """
        complete = True
        for namespace in self.namespaces:
            for resource, build in _KINDS.items():
                complete &= await self._renew(namespace, resource, build)
        return complete

    async def _renew(self, namespace: str, resource: str, build: Callable[[Object, Attestor], Patch]) -> bool:
        path = custom_resource_path(resource, namespace=namespace)
        patches: dict[str, Patch] = {}

        def take(item: Object) -> None:
            if patch := build(item, self.attestor):
                # a newer object has perhaps another review
                patch.setdefault("metadata", {})["resourceVersion"] = item["metadata"]["resourceVersion"]
                patches[item["metadata"]["name"]] = patch

        try:
            await self.kube.scan(path, take)
        except ApiError as error:
            log.warning("the proofs of %s can't be renewed: %s", resource, error, extra={"namespace": namespace})
            return error.code in (403, 404)
        written = [await self._write(namespace, resource, name, patch) for name, patch in patches.items()]
        return all(written)

    async def _write(self, namespace: str, resource: str, name: str, patch: Patch) -> bool:
        self.metrics.writes.labels("proof").inc()
        try:
            await self.kube.patch(custom_resource_path(resource, namespace=namespace, name=name), patch)
        except ApiError as error:
            log.warning("the proof of %s was not renewed: %s", name, error, extra={"namespace": namespace})
            return error.code == 404
        return True


def renew_skill(skill: Object, attestor: Attestor) -> Patch:
    """Return the patch of a skill whose proofs are of a former key; empty if there is none."""
    patch: Patch = {}
    author = attestor.read_author(skill)
    if attestor.is_shipped(skill):
        patch |= _build_patch(skill, attestor.sign_shipped(skill))
    elif author and not author.startswith(CLAIMED):
        patch |= _build_patch(skill, attestor.sign_author(skill))
    review, uid = (skill.get("spec") or {}).get("review"), skill["metadata"]["uid"]
    digest = content_digest(skill.get("spec") or {})
    if isinstance(review, dict) and attestor.is_proven_review(review, uid=uid, digest=digest):
        proof = attestor.sign_review(review, uid=uid, digest=digest)
        if proof != review.get("proof"):
            patch["spec"] = {"review": {"proof": proof}}
    return patch


def renew_session(session: Object, attestor: Attestor) -> Patch:
    """Return the patch of a session whose proof is of a former key; empty if there is none."""
    caller = attestor.read_caller(session)
    return _build_patch(session, attestor.sign_caller(session)) if caller and not caller.startswith(CLAIMED) else {}


def _build_patch(item: Object, proof: str) -> Patch:
    if (item["metadata"].get("annotations") or {}).get(ANNOTATION_CALLER_PROOF) == proof:
        return {}
    return {"metadata": {"annotations": {ANNOTATION_CALLER_PROOF: proof}}}


_KINDS: Final[dict[str, Callable[[Object, Attestor], Patch]]] = {SKILLS: renew_skill, SESSIONS: renew_session}
