"""Search for the knee: which rates are tried, and which of them is the knee."""

from collections.abc import Callable
from functools import partial

import pytest
from harness import TimedExecution
from knee import GAP, Probe, choose, find_knee

LIMIT = 250.0


def build_probe(rate: float, *, p99: float = 10, problem: str = "", start: str = "Warm") -> Probe:
    run = TimedExecution(milliseconds=p99, answer={"start": start}, problem=problem)
    return Probe(rate=rate, runs=[run], processes={"operator": {"cpu s": 0.004}}, writes={"operator": 3})


async def search(capacity: Callable[[float], float], *, first: float = 8, most: int = 12) -> list[Probe]:
    async def probe(rate: float) -> Probe:
        return build_probe(rate, p99=capacity(rate))

    return await find_knee(probe, first=first, limit=LIMIT, most=most)


def saturate(rate: float, *, above: float) -> float:
    """Return a p99 in milliseconds that is over the limit above a rate."""
    return 10 if rate <= above else 1000


@pytest.mark.parametrize("capacity", [1.3, 8, 21.7, 333])
async def test_the_knee_is_found_to_a_tenth_wherever_the_search_begins(capacity: float) -> None:
    probes = await search(partial(saturate, above=capacity))
    knee = choose(probes, LIMIT)
    assert knee is not None
    assert knee.rate <= capacity < knee.rate * GAP


async def test_one_slow_probe_is_no_knee() -> None:
    slow = iter([1000, 10, 10])
    probes = await search(lambda rate: next(slow) if rate == 8 else saturate(rate, above=8))
    assert [each.rate for each in probes[:4]] == [8, 8, 16, 16]
    knee = choose(probes, LIMIT)
    assert knee is not None
    assert 8 <= knee.rate < 16


async def test_a_search_ends_after_its_most_probes() -> None:
    assert [each.rate for each in await search(lambda rate: 10, most=3)] == [8, 16, 32]


async def test_where_no_rate_holds_there_is_no_knee() -> None:
    assert choose(await search(lambda rate: 1000, most=4), LIMIT) is None


@pytest.mark.parametrize(
    "probe",
    [build_probe(8, problem="RuntimeError"), build_probe(8, start="Cold"), build_probe(8, p99=LIMIT + 1)],
    ids=["failed", "cold", "slow"],
)
def test_a_rate_does_not_hold_if_an_execution_fails_or_waits_for_a_pod_or_is_late(probe: Probe) -> None:
    assert not probe.holds(LIMIT)
    assert choose([probe, build_probe(16)], LIMIT) is None, "what held by chance at a higher rate is no knee"


def test_processor_time_and_writes_are_those_of_an_execution() -> None:
    row = build_probe(8).row()
    assert (row["processor ms"], row["writes"]) == ({"operator": 4.0, "all": 4.0}, {"operator": 3.0})
