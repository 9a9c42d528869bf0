"""Steps of a rotation of the sandbox key, and proofs that outlast it."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF, ANNOTATION_CREATED, LABEL_CALLER, MAX_TIMEOUT_SECONDS
from mcp_exec_api.meta import micro_time
from mcp_exec_api.skill import content_digest
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_proofs import read_skill
from mcp_exec_common.sandbox_keys import SandboxKeys, read_keys
from mcp_exec_operator.cluster.keys.renewal import renew_session, renew_skill
from mcp_exec_operator.cluster.keys.rotation import (
    ANNOTATION_ROTATE,
    ANNOTATION_SINCE,
    RotationRules,
    Step,
    plan_change,
    plan_renewal,
)
from mcp_exec_operator.cluster.keys.secrets import decode_entries

Object = dict[str, Any]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULES = RotationRules.of(rotate_days=90, max_ttl_seconds=3600)
OVERLAP = timedelta(days=8)


def secret(*, since: timedelta | None = timedelta(0), rotate: bool | str = False, **entries: str) -> Object:
    """The Secret as it has been for so long."""
    annotations = {} if since is None else {ANNOTATION_SINCE: micro_time(NOW - since)}
    data = {name.replace("_", "-"): base64.b64encode(key.encode()).decode() for name, key in entries.items()}
    annotations |= {ANNOTATION_ROTATE: "now" if rotate is True else rotate} if rotate else {}
    return {"metadata": {"name": "keys", "resourceVersion": "7", "annotations": annotations}, "data": data}


def apply(item: Object, patch: Object) -> Object:
    """Merge a patch as the API server does, and return the Secret without what is null."""
    merged = {**item["metadata"]["annotations"], **patch["metadata"]["annotations"]}
    annotations = {name: text for name, text in merged.items() if text is not None}
    data = {name: text for name, text in {**item["data"], **patch["data"]}.items() if text is not None}
    return {"metadata": {**item["metadata"], "annotations": annotations}, "data": data}


@pytest.mark.parametrize(
    ("item", "step"),
    [
        (secret(key="a", since=timedelta(days=89)), None),
        (secret(key="a", since=timedelta(days=90)), Step.PUBLISH),
        (secret(key="a", rotate=True), Step.PUBLISH),
        (secret(key="a", next_key="b", since=timedelta(minutes=4)), None),
        (secret(key="a", next_key="b", since=timedelta(minutes=5)), Step.SIGN),
        (secret(key="b", previous_key="a", since=OVERLAP - timedelta(seconds=1)), None),
        (secret(key="b", previous_key="a", since=OVERLAP), Step.RETIRE),
        # one rotation after the other
        (secret(key="a", next_key="b", since=timedelta(minutes=4), rotate=True), None),
        (secret(key="b", previous_key="a", since=timedelta(days=1), rotate=True), None),
        (secret(key="a", rotate="later"), None),
        # after a leak nothing waits
        (secret(key="a", rotate="compromised"), Step.WITHDRAW),
        (secret(key="a", rotate="compromised", since=None), Step.WITHDRAW),
        (secret(key="a", next_key="b", rotate="compromised"), Step.WITHDRAW),
        (secret(key="b", previous_key="a", rotate="compromised"), Step.WITHDRAW),
        # three keys are somebody else's work: the oldest goes first
        (secret(key="b", previous_key="a", next_key="c", since=timedelta(days=1)), None),
        (secret(key="b", previous_key="a", next_key="c", since=OVERLAP), Step.RETIRE),
        # a clock that was ahead
        (secret(key="a", next_key="b", since=timedelta(days=-1)), None),
    ],
)
def test_a_step_is_due_when_every_process_has_the_step_before_it(item: Object, step: Step | None) -> None:
    change = plan_change(item, RULES, moment=NOW)
    assert (change and change.step) == step


def test_a_rotation_has_two_keys_at_any_time_and_takes_each_step_once() -> None:
    item, moment, seen = secret(key="first", rotate=True), NOW, []
    for _ in range(10 * 24 * 60):
        change = plan_change(item, RULES, moment=moment)
        if change is not None:
            patch = change.build_patch(item)
            assert patch["metadata"]["resourceVersion"] == "7"
            item = apply(item, patch)
            keys = read_keys(decode_entries(item))
            assert len(keys) <= 2
            seen.append((change.step, moment - NOW, keys))
        moment += timedelta(minutes=1)
    new = seen[-1][2][0]
    assert len(new) == 64
    assert seen == [
        (Step.PUBLISH, timedelta(0), (b"first", new)),
        (Step.SIGN, timedelta(minutes=5), (new, b"first")),
        (Step.RETIRE, timedelta(minutes=5) + OVERLAP, (new,)),
    ]
    # its age counts from its first signature
    assert item["metadata"]["annotations"] == {ANNOTATION_SINCE: micro_time(NOW + timedelta(minutes=5))}


@pytest.mark.parametrize("since", [None, "yesterday", "2026-03-01", ""])
def test_a_key_of_unknown_age_is_new(since: str | None) -> None:
    item = secret(key="a", since=None, rotate=True)
    if since is not None:
        item["metadata"]["annotations"][ANNOTATION_SINCE] = since
    change = plan_change(item, RULES, moment=NOW)
    assert change is not None
    assert change.step is None
    assert (change.entries, change.annotations) == ({}, {ANNOTATION_SINCE: micro_time(NOW)})
    later = plan_change(apply(item, change.build_patch(item)), RULES, moment=NOW)
    assert later is not None
    assert later.step is Step.PUBLISH


def test_a_key_that_has_leaked_is_replaced_with_all_others_by_one_that_nobody_has_seen() -> None:
    item = secret(key="a", next_key="b", previous_key="c", rotate="compromised")
    for _ in range(2):  # and once more if it leaks again
        change = plan_change(item, RULES, moment=NOW)
        assert change is not None
        before, item = read_keys(decode_entries(item)), apply(item, change.build_patch(item))
        (new,) = read_keys(decode_entries(item))
        assert new not in before
        assert item["metadata"]["annotations"] == {ANNOTATION_SINCE: micro_time(NOW)}
        assert plan_change(item, RULES, moment=NOW) is None
        item["metadata"]["annotations"][ANNOTATION_ROTATE] = "compromised"


@pytest.mark.parametrize(
    ("item", "keys", "before"),
    [
        (secret(key="a", since=timedelta(days=1)), None, None),
        (secret(key="a", next_key="b", since=timedelta(minutes=4)), None, None),
        (secret(key="a", next_key="b", since=timedelta(minutes=5)), (b"b", b"a"), None),
        (secret(key="b", previous_key="a", since=timedelta(minutes=4)), None, None),
        (secret(key="b", previous_key="a", since=timedelta(minutes=5)), (b"b", b"a"), NOW),
        (secret(key="b", previous_key="a", since=timedelta(minutes=14)), (b"b", b"a"), NOW - timedelta(minutes=9)),
        (secret(key="b", previous_key="a", since=timedelta(minutes=15)), None, None),
        (secret(key="b", previous_key="a", since=None), None, None),
    ],
)
def test_proofs_are_renewed_before_a_key_signs_and_for_some_minutes_after_it(
    item: Object, keys: tuple[bytes, ...] | None, before: datetime | None
) -> None:
    plan = plan_renewal(item, seen_at=None, moment=NOW)
    assert (plan and (plan.keys, plan.before)) == (keys and (keys, before))


def test_what_was_made_later_is_not_renewed() -> None:
    created, reviewed = datetime(2026, 11, 23, 10, 0, 1, tzinfo=UTC), datetime(2026, 11, 24, 10, tzinfo=UTC)
    item, second = skill(FORMER), timedelta(seconds=1)
    assert renew_skill(item, BOTH, created - second) == {}
    assert renew_skill(item, BOTH, created).keys() == {"metadata"}
    assert renew_skill(item, BOTH, reviewed).keys() == {"metadata", "spec"}
    session = build({"name": "data"}, name="data-1")
    with_proof(session, FORMER.sign_caller(session))
    assert renew_session(session, BOTH, created - second) == {}
    assert renew_session(session, BOTH, created) != {}
    item["spec"]["review"]["at"] = "yesterday"
    assert renew_skill(item, BOTH, created).keys() == {"metadata"}


def test_zero_days_leave_the_annotation() -> None:
    rules = RotationRules.of(rotate_days=0, max_ttl_seconds=0)
    assert plan_change(secret(key="a", since=timedelta(days=3650)), rules, moment=NOW) is None
    change = plan_change(secret(key="a", rotate=True), rules, moment=NOW)
    assert change is not None
    assert change.step is Step.PUBLISH


@pytest.mark.parametrize(("ttl", "days"), [(0, 8), (7 * 24 * 3600, 8), (30 * 24 * 3600, 31)])
def test_a_former_key_outlasts_what_it_has_signed(ttl: float, days: int) -> None:
    rules = RotationRules.of(rotate_days=90, max_ttl_seconds=ttl)
    assert rules.retire_after == timedelta(days=days) > timedelta(seconds=ttl + MAX_TIMEOUT_SECONDS)


OLD, NEW = b"the old key" * 4, b"the new key" * 4
FORMER, BOTH, LATER = (Attestor(keys=SandboxKeys(*keys)) for keys in ((OLD,), (NEW, OLD), (NEW,)))


def with_proof(item: Object, proof: str) -> Object:
    item["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] = proof
    return item


def build(spec: Object, *, name: str, caller: str = "team-a") -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "agents",
            "uid": "u",
            "creationTimestamp": "2026-11-23T10:00:01Z",
            "labels": {LABEL_CALLER: caller} if caller else {},
            "annotations": {ANNOTATION_CREATED: "2026-11-23T10:00:00.000000Z"},
        },
        "spec": spec,
    }


def skill(attestor: Attestor, *, shipped: bool = False) -> Object:
    spec: Object = {"name": "report", "version": 1, "description": "d", "code": "def run(): ..."}
    item = build(spec, name="report-v1", caller="" if shipped else "team-a")
    with_proof(item, attestor.sign_shipped(item) if shipped else attestor.sign_author(item))
    review: Object = {"decision": "Deprecate" if shipped else "Approve", "by": "ann", "at": "2026-11-24T10:00:00Z"}
    review["proof"] = attestor.sign_review(review, uid="u", digest=content_digest(spec))
    spec["review"] = review
    return item


def merge(item: Object, patch: Object) -> Object:
    return {
        name: merge(value, patch.get(name) or {}) if isinstance(value, dict) else (patch.get(name) or value)
        for name, value in item.items()
    }


@pytest.mark.parametrize("shipped", [False, True])
def test_a_skill_stays_what_it_is_after_a_rotation(shipped: bool) -> None:
    item = skill(FORMER, shipped=shipped)
    before = read_skill(item, attestor=FORMER)
    assert read_skill(item, attestor=LATER) != before
    renewed = merge(item, renew_skill(item, BOTH))
    assert read_skill(renewed, attestor=LATER) == read_skill(renewed, attestor=BOTH) == before
    assert renew_skill(renewed, BOTH) == {}


def test_a_session_stays_its_callers_after_a_rotation() -> None:
    item = build({"name": "data", "poolRef": {"name": "default"}}, name="data-1")
    with_proof(item, FORMER.sign_caller(item))
    renewed = merge(item, renew_session(item, BOTH))
    assert LATER.read_caller(item) == "claimed:team-a"
    assert LATER.read_caller(renewed) == BOTH.read_caller(renewed) == "team-a"
    assert renew_session(renewed, BOTH) == {}


def test_what_was_never_proven_is_not_proven_by_a_renewal() -> None:
    stranger = Attestor(keys=SandboxKeys(b"a key of the attacker"))
    item = skill(stranger)
    assert renew_skill(item, BOTH) == {}
    item = skill(FORMER)
    item["spec"]["code"] = "def run(): evil()"
    assert renew_skill(item, BOTH) == {}
    item = skill(FORMER)
    item["spec"]["review"] |= {"by": "somebody else"}
    assert "spec" not in renew_skill(item, BOTH)
    for proof in ("", "x", FORMER.sign_author(skill(FORMER))):
        session = with_proof(build({"name": "data"}, name="data-1"), proof)
        assert renew_session(session, BOTH) == {}
