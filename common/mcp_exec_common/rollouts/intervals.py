"""Confidence intervals of shares, means and quantiles. Pure.

Wilson's interval for shares (E. B. Wilson, 1927), Student's t for means, order statistics for quantiles.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Self

from mcp_exec_api.wire.rollouts import MeasuredInterval

CONFIDENCE: Final = 0.95
_Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_T: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles of Student's distribution for 1 to 10 degrees of freedom, two-sided at 95 %."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float
    samples: int

    @classmethod
    def from_measured(cls, measured: MeasuredInterval) -> Self:
        """Return the interval of a response."""
        return cls(
            value=measured.value,
            low=-math.inf if measured.low is None else measured.low,
            high=math.inf if measured.high is None else measured.high,
            samples=measured.samples,
        )

    def to_measured(self) -> MeasuredInterval:
        """Return the interval for a response: JSON has no infinite numbers."""
        return MeasuredInterval(
            value=self.value,
            low=self.low if math.isfinite(self.low) else None,
            high=self.high if math.isfinite(self.high) else None,
            samples=self.samples,
        )


def share_interval(hits: float, samples: int) -> Interval | None:
    """Return Wilson's interval of a share; None without samples. Raises ValueError if there are more hits.

    A sample may be a share itself, and count as a part of a hit.
    """
    if not 0 <= hits <= samples:
        raise ValueError(f"hits: {hits} of {samples} samples")
    if samples == 0:
        return None
    share, z2 = hits / samples, _Z * _Z
    centre = (share + z2 / (2 * samples)) / (1 + z2 / samples)
    half = _Z / (1 + z2 / samples) * math.sqrt(share * (1 - share) / samples + z2 / (4 * samples**2))
    return Interval(value=share, low=max(0.0, centre - half), high=min(1.0, centre + half), samples=samples)


def mean_interval(samples: int, total: float, squares: float) -> Interval | None:
    """Return Student's interval of a mean, from the number of samples, their sum and the sum of their squares.

    None without samples. One sample has no interval: its ends are infinite.
    """
    if samples <= 0:
        return None
    mean = total / samples
    if samples == 1:
        return Interval(value=mean, low=-math.inf, high=math.inf, samples=1)
    # rounding can make the difference slightly negative
    variance = max(0.0, (squares - samples * mean * mean) / (samples - 1))
    half = student_quantile(samples - 1) * math.sqrt(variance / samples)
    return Interval(value=mean, low=mean - half, high=mean + half, samples=samples)


def quantile_interval(samples: Sequence[float], quantile: float) -> Interval | None:
    """Return the interval of a quantile by order statistics; None without samples.

    An end that would lie beyond the samples is infinite: too few of them say nothing about that side.
    """
    ordered, count = sorted(samples), len(samples)
    if count == 0:
        return None
    value = ordered[min(count - 1, max(0, math.ceil(quantile * count) - 1))]
    half = _Z * math.sqrt(count * quantile * (1 - quantile))
    low, high = math.floor(count * quantile - half), math.ceil(count * quantile + half) + 1
    return Interval(
        value=value,
        low=ordered[low - 1] if low >= 1 else -math.inf,
        high=ordered[high - 1] if high <= count else math.inf,
        samples=count,
    )


def student_quantile(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's distribution, exact to three digits."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    # Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5)
    z, n = _Z, float(freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3
