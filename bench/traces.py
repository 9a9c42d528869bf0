"""Arrivals of executions for simulations: rates over time, and times drawn from them."""

import math
import random
from collections.abc import Callable
from itertools import accumulate
from typing import Final

_BURSTS = tuple(accumulate(random.Random(7).expovariate(1 / 120) for _ in range(200)))
Intensity = Callable[[float, float], float]


def steady(at: float, whole: float) -> float:
    """Return two per second."""
    return 2.0


def diurnal(at: float, whole: float) -> float:
    """Return a daily cycle between almost zero and four per second."""
    return 2.05 - 2.0 * math.cos(2 * math.pi * at / whole)


def bursts(at: float, whole: float) -> float:
    """Return 0.5 per second, and ten per second for four seconds at irregular times, two minutes apart on average."""
    return 10.0 if any(0 <= at - start < 4 for start in _BURSTS) else 0.5


def on_off(at: float, whole: float) -> float:
    """Return four per second for two minutes of every ten, and zero between."""
    return 4.0 if at % 600 < 120 else 0.0


def flash_crowd(at: float, whole: float) -> float:
    """Return 1/3 per second, and after a third of the trace a peak of twelve per second that lasts ten minutes."""
    since = at - whole / 3
    if since < 0:
        return 0.33
    return 0.33 + 12 * min(1.0, since / 20) * math.exp(-max(0.0, since - 20) / 150)


TRACES: Final[dict[str, Intensity]] = {
    "steady": steady,
    "diurnal": diurnal,
    "bursts": bursts,
    "on-off": on_off,
    "flash crowd": flash_crowd,
}


def arrivals(intensity: Intensity, *, seconds: float, bursty: bool, seed: int) -> list[float]:
    """Draw times of arrival from a renewal process of unit rate, stretched so that it has the intensity.

    The gaps are exponential (Poisson), or hyperexponential with a squared coefficient of variation of 6.
    """
    rng = random.Random(seed)
    share = (1 + math.sqrt(5 / 7)) / 2

    def gap() -> float:
        if not bursty:
            return rng.expovariate(1.0)
        return rng.expovariate(2 * share) if rng.random() < share else rng.expovariate(2 * (1 - share))

    step, found, done, due = 0.05, [], 0.0, gap()
    for index in range(int(seconds / step)):
        rate = intensity(index * step, seconds)
        while rate and done + rate * step >= due:
            found.append(index * step + (due - done) / rate)
            due += gap()
        done += rate * step
    return found
