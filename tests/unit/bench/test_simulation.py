"""The simulation of scaling: its arrivals, its autoscaler, and that it is the operator's pool that decides in it."""

import importlib
import itertools
import statistics
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("scaling")


@pytest.mark.parametrize(("bursty", "variation"), [(False, 1.0), (True, 6.0)])
def test_arrivals_have_their_rate_and_their_variation(scaling: Any, bursty: bool, variation: float) -> None:
    times = scaling.arrivals(lambda at, whole: 5.0, seconds=4000, bursty=bursty, seed=3)
    assert times == sorted(times)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = statistics.fmean(gaps)
    assert mean == pytest.approx(0.2, rel=0.1)
    assert statistics.variance(gaps) / mean**2 == pytest.approx(variation, rel=0.3)


def test_arrivals_follow_the_intensity(scaling: Any) -> None:
    times = scaling.arrivals(scaling.TRACES["on-off"], seconds=1200, bursty=False, seed=1)
    assert all(at % 600 < 121 for at in times)
    assert len(times) == pytest.approx(960, rel=0.15)


def test_an_autoscaler_goes_up_in_steps_and_down_after_its_window(scaling: Any) -> None:
    hpa = scaling.SimulatedHpa(target=0.5)
    assert hpa.replicas(busy=10, pods=10, now=0) == 20
    assert hpa.replicas(busy=10, pods=19, now=15) == 19  # within its tolerance
    assert hpa.replicas(busy=2, pods=20, now=30) == 20
    assert hpa.replicas(busy=2, pods=20, now=400) == 4


async def test_the_same_seed_gives_the_same_outcome_and_more_pods_more_hits(scaling: Any) -> None:
    times = scaling.arrivals(scaling.TRACES["steady"], seconds=240, bursty=False, seed=1)

    def run(size: int) -> dict[str, float]:
        found: dict[str, float] = scaling.simulate(times, seconds=240, spec={"warm": {"min": size}}, seed=1)
        return found

    assert run(4) == run(4)
    few, many = run(4), run(30)
    assert few["hit rate"] < 0.9 < many["hit rate"]
    assert few["idle"] < many["idle"]
    assert few["mean wait"] > many["mean wait"]


async def test_following_demand_beats_a_fixed_size_of_the_same_cost_when_a_crowd_comes(scaling: Any) -> None:
    seconds = 1800.0
    times = scaling.arrivals(scaling.TRACES["flash crowd"], seconds=seconds, bursty=False, seed=1)
    ours = scaling.simulate(times, seconds=seconds, spec={"warm": {"min": 2, "max": 200}}, seed=1)
    size = round(ours["idle"] / (seconds - scaling.FILLING))
    fixed = scaling.simulate(times, seconds=seconds, spec={"warm": {"min": size}}, seed=1)
    assert ours["hit rate"] > 0.9
    assert ours["hit rate"] > fixed["hit rate"] + 0.1


def test_a_line_is_read_between_its_points(scaling: Any) -> None:
    line = [{"idle": 10.0, "hit rate": 0.5}, {"idle": 20.0, "hit rate": 0.9}]
    assert scaling.interpolate(line, 15.0)["hit rate"] == pytest.approx(0.7)
    assert scaling.interpolate(line, 99.0)["hit rate"] == 0.9
    assert scaling.interpolate(line, 0.0)["hit rate"] == 0.5
