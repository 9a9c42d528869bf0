"""What is to be done about a pod, and when it is looked at again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.test_pod_cache import item
from tests.unit.operator.test_pool import pool

from mcp_exec_operator.core.pods.indexes import NEVER, NOW, Schedule
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.reviews import PodAction

PULLING = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]}


@pytest.fixture
def made() -> Pool:
    """A pool without reuse, whose time stands at 0."""
    found = pool()
    found.clock = lambda: 0.0
    return found


def observe(made: Pool, name: str = "pod", *, status: Any = None, **state: Any) -> Pod:
    body = item(name, template=made.shape.template_hash, **state)
    body["metadata"]["ownerReferences"] = [{"uid": "u"}, {"uid": "", "blockOwnerDeletion": True}]
    body["status"] |= status or {}
    pod = made.pods.observe(body, now=0.0)
    pod.trust.verified = pod.start.created_here = True
    return pod


def actions(made: Pool, now: float) -> set[PodAction]:
    return {action for review in made.review(now) for action in review.actions}


def test_a_pod_that_has_an_address_is_probed_once_and_sealed_at_its_age(made: Pool) -> None:
    observe(made)
    assert actions(made, 0.0) == {PodAction.PROBE}
    assert made.pods.next_at == 5.0
    assert actions(made, 4.9) == set()
    assert PodAction.GUARD in actions(made, 5.0)


def test_a_pod_without_the_owners_of_the_pool_is_guarded_at_once(made: Pool) -> None:
    pod = observe(made)
    pod.trust.sealed = True
    made.isolation.verify("policy")
    assert PodAction.GUARD in actions(made, 0.0)


def test_a_pod_whose_image_cannot_be_pulled_is_kept_and_counts_every_ten_seconds(made: Pool) -> None:
    pod = observe(made, phase="Pending", status=PULLING)
    pod.trust.sealed = True
    counted = [PodAction.COUNT_FAILURE in actions(made, at) for at in (0.0, 9.0, 10.0, 15.0, 20.0, 500.0)]
    assert counted == [True, False, True, False, True, True]


def test_the_time_for_which_a_pod_was_held_does_not_count(made: Pool) -> None:
    observe(made, phase="Pending", status=PULLING)
    actions(made, 500.0)
    observe(made, phase="Pending")
    assert PodAction.FAIL not in actions(made, 500.0)
    assert PodAction.FAIL not in actions(made, 619.0)
    assert PodAction.FAIL in actions(made, 621.0)


def test_a_warm_pod_can_be_asked_for_libraries_and_is_not_looked_at_again(made: Pool) -> None:
    pod = observe(made)
    pod.trust.sealed = True
    made.mark_ready("pod")
    assert actions(made, 0.0) == {PodAction.READ_LIBRARIES}
    assert made.pods.next_at is None


def test_a_review_of_a_pod_in_another_state_is_void(made: Pool) -> None:
    pod = observe(made)
    [review] = made.review(0.0)
    assert review.is_valid
    made.pods.retire(pod)
    assert not review.is_valid


TIMES = st.sampled_from([NOW, 0.0, 1.0, 2.0, 3.0, NEVER])


@given(sets=st.lists(st.tuples(st.sampled_from("abcd"), TIMES), max_size=400), now=st.sampled_from([0.0, 1.0, 2.5]))
def test_a_schedule_keeps_the_last_time_of_each_name_and_no_more(sets: list[tuple[str, float]], now: float) -> None:
    schedule, times = Schedule(), dict(sets)
    for name, at in sets:
        schedule.set(name, at)
    assert schedule.size <= 2 * 4 + 64
    assert schedule.next_at == min((at for at in times.values() if at < NEVER), default=None)
    due = schedule.pop_due(now)
    assert set(due) == {name for name, at in times.items() if at <= now}
    assert [times[name] for name in due] == sorted(times[name] for name in due)
    assert schedule.pop_due(now) == []
