"""Which variant a caller gets, and how warm pods are shared: sticky, by weight, and with few moves."""

from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_exec_operator.variants.allocation import share_pods
from mcp_exec_operator.variants.assignment import assign_variant

NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "h"])
WEIGHTS = st.dictionaries(NAMES, st.integers(0, 100), min_size=1, max_size=8).filter(lambda each: any(each.values()))
KEYS = [f"caller-{index}" for index in range(2000)]


@given(weights=WEIGHTS, key=st.text())
def test_a_caller_gets_the_same_variant_each_time_in_whatever_order_they_are(weights: dict[str, int], key: str) -> None:
    chosen = assign_variant(key, weights, pool="agents/default")
    assert assign_variant(key, dict(reversed(weights.items())), pool="agents/default") == chosen
    assert weights[chosen] > 0


def test_callers_are_divided_by_weight() -> None:
    weights = {"a": 70, "b": 20, "c": 10, "off": 0}
    chosen = [assign_variant(key, weights, pool="agents/default") for key in KEYS]
    for name, weight in weights.items():
        # four standard deviations of so many draws at most
        assert abs(chosen.count(name) - len(KEYS) * weight / 100) < 4 * (len(KEYS) * 0.25) ** 0.5


@given(weights=WEIGHTS, changed=NAMES, weight=st.integers(0, 100))
def test_a_weight_that_changes_moves_callers_to_or_from_its_variant_alone(
    weights: dict[str, int], changed: str, weight: int
) -> None:
    after = weights | {changed: weight}
    assume(any(after.values()))
    rose = weight >= weights.get(changed, 0)
    for key in KEYS[:100]:
        old, new = (assign_variant(key, each, pool="agents/default") for each in (weights, after))
        assert old == new or changed == (new if rose else old)


def test_pools_assign_independently() -> None:
    weights = {"a": 50, "b": 50}
    same = sum(assign_variant(key, weights, pool="n/one") == assign_variant(key, weights, pool="n/two") for key in KEYS)
    assert 0.4 < same / len(KEYS) < 0.6


@given(desired=st.integers(0, 5000), weights=WEIGHTS)
def test_shares_make_up_what_is_desired_and_leave_none_without_a_pod(desired: int, weights: dict[str, int]) -> None:
    found = share_pods(desired, weights)
    weighing = [name for name, weight in weights.items() if weight]
    assert sum(found.values()) == desired
    assert all(share >= 0 for share in found.values())
    assert all(not found[name] for name, weight in weights.items() if not weight)
    if desired >= len(weighing):
        assert all(found[name] for name in weighing)
    for name, weight in weights.items():
        # off by less than one pod, and by those that the small ones have got
        assert abs(found[name] - desired * weight / sum(weights.values())) < len(weights) + 1


def test_nothing_is_shared_where_nothing_weighs() -> None:
    assert share_pods(3, {}) == {}
    assert share_pods(3, {"a": 0}) == {"a": 0}
