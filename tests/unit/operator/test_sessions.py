"""Decisions about sessions: when they end, what is deleted, what their status says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mcp_exec_api.constants import LABEL_MANAGED_BY
from mcp_exec_api.files import Owner
from mcp_exec_api.reasons.execution import SessionReason
from mcp_exec_api.sandbox_session import SessionPhase, format_memory
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.pods.pod import Pod, PodState, SeenPod
from mcp_exec_operator.features.sessions.limits import KEEP_UNUSED, find_disposable, find_excess
from mcp_exec_operator.features.sessions.record import SessionEnd, SessionRecord
from mcp_exec_operator.features.sessions.status import build_session_status, describe_owner, is_urgent

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def body(name: str = "s", /, *, managed: bool = True, status: Object | None = None, **spec: Any) -> Object:
    labels = {LABEL_MANAGED_BY: "mcp-exec"} if managed else {}
    metadata = {"name": name, "namespace": "agents", "uid": name, "resourceVersion": "1", "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": status or {}}


def record(name: str = "s", /, *, caller: str = "k8s/ann", **options: Any) -> SessionRecord:
    return SessionRecord.from_object(body(name, **options), caller=caller)


def ended(name: str, minutes: int, /, **options: Any) -> SessionRecord:
    made = record(name, **options)
    made.unused_since = NOW - timedelta(minutes=minutes)
    made.end = SessionEnd(phase=SessionPhase.LOST, reason=SessionReason.POD_LOST, at=made.unused_since)
    return made


def running(name: str = "s", /, **options: Any) -> SessionRecord:
    made = record(name, **options)
    pod = Pod(name="p", state=PodState.BUSY, seen=SeenPod(uid="u", node="n", labelled_busy=True))
    made.start(pod, moment=NOW)
    return made


def test_a_session_without_a_pod_does_not_end() -> None:
    made = record()
    made.use.count(NOW)
    assert made.find_expiry() is None


def test_sessions_without_a_pod_are_deleted_after_a_time_and_beyond_a_number_unless_somebody_made_them() -> None:
    recent, older, old = ended("a", 1), ended("b", 2), ended("c", 61)
    others = [ended("d", 61, managed=False), running("e")]
    disposable, due = find_disposable([old, older, recent, *others], moment=NOW, max_unused=5)
    assert disposable == [old]
    assert due == NOW - timedelta(minutes=2) + KEEP_UNUSED
    assert find_disposable([old, older, recent, *others], moment=NOW, max_unused=1)[0] == [older, old]


def test_sessions_with_a_pod_count_for_their_owner_and_namespace() -> None:
    new, others = record("n"), [running("a"), running("b"), record("without-pod")]
    assert find_excess(others, new.owner, max_per_owner=3, max_per_namespace=3) == ""
    assert "the owner has 2 sessions" in find_excess(others, new.owner, max_per_owner=2, max_per_namespace=9)
    assert "the namespace has 2" in find_excess(others, new.owner, max_per_owner=9, max_per_namespace=2)
    name = Owner(namespace="agents", caller="c").qualify("n")
    foreign = record(name, caller="c", name="n")
    assert find_excess(others, foreign.owner, max_per_owner=1, max_per_namespace=3) == ""


@pytest.mark.parametrize(
    ("status", "message"),
    [({"ownerDigest": "0" * 16}, "another owner"), ({"phase": "Hibernating"}, "a newer version")],
)
def test_a_session_of_another_owner_or_version_stays_unusable_after_an_event(status: Object, message: str) -> None:
    name = Owner(namespace="agents", caller="k8s/ann").qualify("s")
    made = record(name, name="s", status=status)
    assert message in made.invalid
    later = body(name, name="s", status=status)
    later["metadata"]["resourceVersion"] = "2"
    made.observe(later)
    assert message in made.invalid


def test_only_a_change_that_the_next_operator_needs_is_written_at_once() -> None:
    made = running()
    stored = build_session_status(made, held=False, queued=0, moment=NOW)
    for _ in range(5):
        made.use.count(NOW)
    assert not is_urgent(stored, build_session_status(made, held=True, queued=3, moment=NOW))
    made.resets = 1
    assert is_urgent(stored, build_session_status(made, held=True, queued=0, moment=NOW))


@pytest.mark.parametrize("change", [{"user": "u"}, {"name": "t"}, {"poolRef": {"name": "p"}}])
def test_what_a_session_is_does_not_change_where_the_api_server_lets_it(change: Object) -> None:
    made = running()
    before = made.owner, made.pool
    changed = body(**change)
    changed["metadata"]["resourceVersion"] = "2"
    made.observe(changed)
    assert "was changed after its creation" in made.invalid
    assert (made.owner, made.pool) == before


def test_a_pod_of_another_owner_is_not_taken_over_from_a_changed_object() -> None:
    name = Owner(namespace="agents", caller="c").qualify("s")
    own = running(name, caller="c", name="s")
    status = build_session_status(own, held=False, queued=0, moment=NOW)
    # somebody removed caller and name while no operator ran
    stolen = SessionRecord.from_object(body(name, status=status), caller="")
    assert stolen.find_stored_pod() is None
    assert "nobody may use it" in stolen.invalid
    changed = SessionRecord.from_object(body(name, status=status), caller="d")
    assert changed.find_stored_pod() is None
    assert "executions of its owner look" in changed.invalid


@pytest.mark.parametrize("status", [{"phase": "Strange"}, {"executions": -1}, {"phase": "Ready", "startedAt": "soon"}])
def test_a_status_that_is_not_understood_makes_a_session_invalid(status: Object) -> None:
    assert record(status=status).invalid


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"idleTimeoutSeconds": 0}, "spec.idleTimeoutSeconds"),
        ({"unknown": 1}, "spec.unknown"),
        ({"user": "u"}, "NAME-"),
    ],
)
def test_an_invalid_object_says_what_is_wrong(spec: Object, message: str) -> None:
    assert message in record(**spec).invalid


def test_amounts_and_owners_are_shown_for_people() -> None:
    assert [format_memory(count) for count in (0, 48 * 2**20, 3 * 2**29)] == ["0Mi", "48Mi", "1.5Gi"]
    owners = [Owner(namespace="a"), Owner(namespace="a", user="u"), Owner(namespace="a", caller="c", user="u")]
    assert [describe_owner(owner) for owner in owners] == ["nobody", "nobody", "c, user u"]
