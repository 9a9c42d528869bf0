"""The index of skills: answers of the API server that are older than what the watch has reported."""

from typing import Any

import pytest
from tests.support.skills import ATTESTOR, make_skill

from mcp_exec_api.files import Owner
from mcp_exec_api.skill import content_digest
from mcp_exec_operator.features.skills.index import SkillIndex

ANN = Owner(namespace="agents", caller="ann")


def build(uid: str, *, version: str, **spec: Any) -> dict[str, Any]:
    skill = make_skill("report", uid=uid, **spec)
    skill["metadata"]["resourceVersion"] = version
    return skill


def test_an_answer_that_is_older_than_a_skills_deletion_does_not_bring_it_back() -> None:
    index, skill = SkillIndex(attestor=ATTESTOR), build("a", version="9")
    index.observe(skill, deleted=False)
    index.observe(skill, deleted=True)
    assert index.observe(skill, deleted=False) is None
    assert (
        index.find("report", 1, owner=Owner(namespace="agents"), language="python")
        is index.get("agents", "report-v1")
        is None
    )
    assert index.next_version("agents", "report") == 1


def test_an_answer_that_is_older_than_a_change_does_not_undo_it() -> None:
    index = SkillIndex(attestor=ATTESTOR)
    newer = index.observe(build("a", version="10", description="New."), deleted=False)
    assert index.observe(build("a", version="9", description="Old."), deleted=False) is newer
    assert index.get("agents", "report-v1") is newer


def test_the_late_deletion_of_a_skill_leaves_the_next_one_of_its_name() -> None:
    index = SkillIndex(attestor=ATTESTOR)
    index.observe(build("a", version="9"), deleted=False)
    following = index.observe(build("b", version="11"), deleted=False)
    assert index.observe(build("a", version="9"), deleted=True) is following
    assert index.get("agents", "report-v1") is following


def test_an_earlier_review_that_somebody_writes_back_counts_for_nothing() -> None:
    index = SkillIndex(attestor=ATTESTOR)
    skill = build("a", version="1")
    digest = content_digest(skill["spec"])
    reviews = {}
    for decision, day in (("Approve", 1), ("Deprecate", 2)):
        review = {"decision": decision, "by": "boss", "at": f"2026-01-0{day}T00:00:00.000000Z"}
        reviews[decision] = review | {"proof": ATTESTOR.sign_review(review, uid="a", digest=digest)}
    status = {"state": "Approved", "reviewedAt": reviews["Approve"]["at"], "digest": digest}
    found = []
    for number, review in enumerate([reviews["Approve"], reviews["Deprecate"], reviews["Approve"], None], start=2):
        skill = build("a", version=str(number), **({"review": review} if review else {})) | {"status": status}
        entry = index.observe(skill, deleted=False)
        assert entry is not None
        found.append(entry.state)
    assert found == ["Approved", "Deprecated", "Deprecated", "Deprecated"]


BY_CODE = {"provenance": {"source": "Code", "execution": "hostile", "executionUid": "e-1", "codeDigest": "sha256:1"}}
BY_CLIENT: dict[str, Any] = {"provenance": {"source": "Code"}}
OF_EXECUTION = {"provenance": {"source": "Execution", "execution": "good", "executionUid": "e-2"}}


@pytest.mark.parametrize(
    ("saved", "imported"),
    [
        ([BY_CLIENT, BY_CODE], 1),
        ([{}, BY_CODE], 1),
        ([OF_EXECUTION, BY_CODE, BY_CODE], 1),
        ([BY_CODE, BY_CLIENT, BY_CODE], 2),
        ([BY_CLIENT, BY_CLIENT], 2),
        ([BY_CODE, BY_CODE], 2),
    ],
)
def test_a_draft_that_code_saved_does_not_replace_what_its_owner_saved(
    saved: list[dict[str, Any]], imported: int
) -> None:
    """Code that a document or a tool's result steers could plant it for the owner's next executions."""
    index = SkillIndex(attestor=ATTESTOR)
    for version, given in enumerate(saved, start=1):
        skill = make_skill("report", version, author="ann", uid=f"u{version}", **given)
        index.observe(skill, deleted=False)
    found = index.find("report", None, owner=ANN, language="python")
    assert found is not None
    assert found.version == imported
    newest = index.find("report", len(saved), owner=ANN, language="python")
    assert newest is not None
    assert newest.version == len(saved)


def test_an_object_that_nobody_stands_for_blocks_no_name() -> None:
    index = SkillIndex(attestor=ATTESTOR)
    for version in (1, 3, 99_999):
        squatted = make_skill("report", uid=f"u{version}", version=version)
        squatted["metadata"]["resourceVersion"] = str(version)
        if version > 1:
            squatted["metadata"]["annotations"] = {}
        index.observe(squatted, deleted=False)
    assert index.next_version("agents", "report") == 2
