"""Skill objects as gateway and operator write them."""

from typing import Any

from mcp_exec_api.constants import ANNOTATION_CREATED_BY
from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.skill import SkillSpec, content_digest
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_proofs import build_skill
from mcp_exec_common.sandbox_keys import SandboxKeys
from tests.support.constants import SANDBOX_KEY

Object = dict[str, Any]
ATTESTOR = Attestor(keys=SandboxKeys(SANDBOX_KEY))
CODE = "def run(a: int = 1):\n    return a\n"


def make_skill(
    name: str, version: int = 1, *, namespace: str = "agents", author: str = "", uid: str = "", **spec: Any
) -> Object:
    """Return the object of a draft, as the API server has it if a uid is given. Without an author nobody proves it."""
    given = {"name": name, "version": version, "description": f"Does {name}.", "code": CODE} | spec
    skill = build_skill(
        SkillSpec.model_validate(given),
        namespace=namespace,
        author=author or "k8s/nobody",
        attestor=ATTESTOR,
        moment=now(),
    )
    if not author:
        del skill["metadata"]["annotations"][ANNOTATION_CREATED_BY]
    if uid:
        skill["metadata"] |= {"uid": uid, "creationTimestamp": micro_time(now()), "resourceVersion": "1"}
    return skill


def review(skill: Object, decision: str = "Approve", *, by: str = "ann", at: str = "") -> Object:
    """Return the review that the gateway writes for a stored skill."""
    made = {"decision": decision, "by": by, "at": at or micro_time(now())}
    digest = content_digest(skill["spec"])
    return made | {"proof": ATTESTOR.sign_review(made, uid=skill["metadata"]["uid"], digest=digest)}
