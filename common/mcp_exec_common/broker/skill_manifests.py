"""New Skill objects, with a proof of their author or of the release that brings them."""

from datetime import datetime

from mcp_exec_api.constants import (
    ANNOTATION_CALLER_PROOF,
    ANNOTATION_CREATED,
    API_VERSION,
    LABEL_CALLER,
    LABEL_MANAGED_BY,
    LABEL_SHIPPED,
    LABEL_SKILL,
    MANAGED_BY,
)
from mcp_exec_api.meta import micro_time
from mcp_exec_api.skill import SkillSpec, object_name
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.objects import Object


def build_skill(spec: SkillSpec, *, namespace: str, author: str, attestor: Attestor, moment: datetime) -> Object:
    """Return the manifest of a new draft. `author` is the caller's label, empty if it has none."""
    manifest = _build(spec, namespace, {LABEL_CALLER: author} if author else {}, moment)
    manifest["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = attestor.sign_author(manifest)
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
