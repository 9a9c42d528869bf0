"""Which variants are taken out of rotation: those that fail where a sibling does not, and never the last."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_operator.variants.outlier_detection import (
    MAX_START_FAILURES,
    WINDOW_SECONDS,
    VariantHealth,
    detect_outlier,
    select_rotation,
)
from mcp_exec_operator.variants.outlier_detection import (
    VariantHealthSnapshot as Snapshot,
)

WELL = Snapshot(comes_up=True, runs=100)
HEALTH = st.builds(
    lambda failures, comes_up, runs, share: Snapshot(
        failures=failures, comes_up=comes_up, runs=runs, faults=round(runs * share)
    ),
    failures=st.integers(0, 9),
    comes_up=st.booleans(),
    runs=st.integers(0, 200),
    share=st.floats(0, 1),
)


@pytest.mark.parametrize(
    ("health", "sibling", "reason"),
    [
        (Snapshot(failures=3), WELL, "StartFailures"),
        (Snapshot(failures=2), WELL, None),
        (Snapshot(failures=3), Snapshot(failures=1, comes_up=True), None),
        (Snapshot(failures=3), Snapshot(), None),
        (Snapshot(runs=10, faults=2), WELL, "ErrorRate"),
        (Snapshot(runs=9, faults=9), WELL, None),
        (Snapshot(runs=100, faults=19), WELL, None),
        (Snapshot(runs=100, faults=50), Snapshot(runs=100, faults=10), "ErrorRate"),
        (Snapshot(runs=100, faults=49), Snapshot(runs=100, faults=10), None),
        (Snapshot(runs=100, faults=90), Snapshot(runs=9), None),
    ],
)
def test_a_variant_goes_that_fails_far_more_than_its_sibling(
    health: Snapshot, sibling: Snapshot, reason: str | None
) -> None:
    assert detect_outlier({"a": health, "b": sibling}) == (("a", reason) if reason else None)


def test_a_variant_alone_stays_however_it_fails() -> None:
    assert detect_outlier({"a": Snapshot(failures=9, runs=100, faults=100)}) is None


@given(healths=st.dictionaries(st.sampled_from("abcdefgh"), HEALTH, min_size=1))
def test_whatever_goes_one_stays(healths: dict[str, Snapshot]) -> None:
    within = dict(healths)
    while (verdict := detect_outlier(within)) is not None:
        del within[verdict[0]]
    assert within


@given(
    weights=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100), min_size=1).filter(lambda w: any(w.values())),
    out=st.sets(st.sampled_from("abcd")),
    data=st.data(),
)
def test_rotation_is_never_empty_and_has_nobody_who_is_out_while_another_is_not(
    weights: dict[str, int], out: set[str], data: st.DataObject
) -> None:
    healths = {name: data.draw(HEALTH) for name in weights}
    found = select_rotation(weights, out, healths)
    assert found
    assert all(weights[name] for name in found)
    if {name for name, weight in weights.items() if weight} - out:
        assert not set(found) & out
    else:
        assert len(found) == 1


def test_the_least_bad_stays_where_all_are_out() -> None:
    healths = {
        "a": Snapshot(failures=5),
        "b": Snapshot(failures=3),
        "c": Snapshot(failures=3, runs=10, faults=9),
    }
    assert select_rotation({"a": 1, "b": 1, "c": 1}, {"a", "b", "c"}, healths) == ("b",)


def test_failures_in_a_row_end_with_a_pod_that_starts_and_runs_are_forgotten_in_time() -> None:
    record = VariantHealth()
    for _ in range(MAX_START_FAILURES):
        record.record_failure("no such image")
    record.record_run(fault=True, now=0.0)
    assert record.snapshot(WINDOW_SECONDS) == Snapshot(failures=MAX_START_FAILURES, runs=1, faults=1)
    record.record_start()
    assert record.snapshot(WINDOW_SECONDS + 1) == Snapshot(comes_up=True)
