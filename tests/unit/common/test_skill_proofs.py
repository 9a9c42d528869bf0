"""Who saved a skill and who reviewed it is proven, for one object and one content."""

from typing import Any

import pytest

from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF, ANNOTATION_CREATED, LABEL_CALLER
from mcp_exec_api.skill import content_digest
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_proofs import read_skill
from mcp_exec_common.sandbox_keys import SandboxKeys

ATTESTOR = Attestor(keys=SandboxKeys(b"release"))
REVIEW = {"decision": "Approve", "by": "ann", "at": "2026-11-23T10:00:00.000000Z", "comment": None}


def make_skill(**changes: Any) -> dict[str, Any]:
    skill: dict[str, Any] = {
        "metadata": {
            "name": "report-v1",
            "namespace": "agents",
            "creationTimestamp": "2026-11-23T10:00:01Z",
            "labels": {LABEL_CALLER: "bob"},
            "annotations": {ANNOTATION_CREATED: "2026-11-23T10:00:00.000000Z"},
        },
        "spec": {"name": "report", "version": 1, "description": "d", "code": "def run(): ..."},
    }
    skill["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = ATTESTOR.sign_author(skill)
    skill["spec"] |= changes
    return skill


def test_an_author_is_proven_for_the_content_that_was_saved() -> None:
    assert ATTESTOR.read_author(make_skill()) == "bob"
    assert ATTESTOR.read_author(make_skill(review={"decision": "Approve"})) == "bob"


@pytest.mark.parametrize("change", [{"code": "import os"}, {"tools": ["a.b"]}, {"user": "u"}, {"description": "e"}])
def test_another_content_has_no_proven_author(change: dict[str, Any]) -> None:
    assert ATTESTOR.read_author(make_skill(**change)) == "claimed:bob"


def test_the_proof_of_an_executions_caller_proves_no_author() -> None:
    skill = make_skill()
    skill["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = ATTESTOR.sign_caller(skill)
    assert ATTESTOR.read_author(skill) == "claimed:bob"


def test_a_review_counts_for_one_object_and_one_content() -> None:
    digest = content_digest(make_skill()["spec"])
    review = REVIEW | {"proof": ATTESTOR.sign_review(REVIEW, uid="u1", digest=digest)}
    assert ATTESTOR.is_proven_review(review, uid="u1", digest=digest)
    assert not ATTESTOR.is_proven_review(review, uid="u2", digest=digest)
    assert not ATTESTOR.is_proven_review(review, uid="u1", digest=content_digest({"code": "other"}))
    for name, value in {"decision": "Deprecate", "by": "bob", "at": "2027-01-01T00:00:00.000000Z"}.items():
        assert not ATTESTOR.is_proven_review(review | {name: value}, uid="u1", digest=digest)
    assert not ATTESTOR.is_proven_review(REVIEW, uid="u1", digest=digest)
    assert not Attestor(keys=SandboxKeys(b"other")).is_proven_review(review, uid="u1", digest=digest)


def test_the_release_proves_the_content_that_it_brings_for_one_object() -> None:
    skill = make_skill()
    assert not ATTESTOR.is_shipped(skill), "the proof of an author"
    del skill["metadata"]["labels"]
    skill["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = ATTESTOR.sign_shipped(skill)
    assert read_skill(skill | {"metadata": {**skill["metadata"], "uid": "u1"}}, attestor=ATTESTOR).is_shipped
    assert not Attestor(keys=SandboxKeys(b"other")).is_shipped(skill)
    assert not ATTESTOR.is_shipped(skill | {"spec": {**skill["spec"], "code": "def run(): 'evil'"}})
    for change in ({"name": "other-v1"}, {"namespace": "others"}, {"creationTimestamp": "2026-11-23T11:00:01Z"}):
        assert not ATTESTOR.is_shipped(skill | {"metadata": {**skill["metadata"], **change}})


def test_an_execution_of_another_skill_has_no_proven_caller() -> None:
    execution = make_skill()
    execution["spec"] = {"code": "", "skillRef": {"name": "a"}, "skills": []}
    execution["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = ATTESTOR.sign_caller(execution)
    assert ATTESTOR.read_caller(execution) == "bob"
    execution["spec"]["skillRef"] = {"name": "b"}
    assert ATTESTOR.read_caller(execution) == "claimed:bob"
