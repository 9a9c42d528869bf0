"""A line through measured values by least squares, and what it says of numbers that nobody measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from figures import Row, Rows

LEAST: Final = 3
"""Measured values that a line needs: two always lie on one."""
UNIT: Final = 1000
"""A line's slope is shown for so many things."""


@dataclass(frozen=True, kw_only=True)
class LinearFit:
    """A line y = intercept + slope * x, and how well it describes the values that it was computed from."""

    intercept: float
    slope: float
    r2: float
    """Share of the variance that the line explains: 1 if all values lie on it. 0 if it explains none."""
    residual: float
    """Largest distance of a value from the line, in the unit of the values."""

    @classmethod
    def compute(cls, xs: Sequence[float], ys: Sequence[float]) -> Self:
        """Return the line with the least squares. Raises ValueError for less than three different x."""
        if len(xs) != len(ys) or len(set(xs)) < LEAST:
            raise ValueError(f"a line needs values at {LEAST} different numbers, these are {len(set(xs))}")
        mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
        spread = sum((x - mean_x) ** 2 for x in xs)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
        intercept = mean_y - slope * mean_x
        errors = [y - (intercept + slope * x) for x, y in zip(xs, ys, strict=True)]
        variance = sum((y - mean_y) ** 2 for y in ys)
        r2 = 1 - sum(error**2 for error in errors) / variance if variance else 1.0
        return cls(intercept=intercept, slope=slope, r2=r2, residual=max(map(abs, errors)))

    def at(self, x: float) -> float:
        """Return the line's value."""
        return self.intercept + self.slope * x


def extend_rows(steps: Mapping[int, Row], *, fields: Iterable[str], numbers: Iterable[int]) -> Rows:
    """Return rows that describe the line of each field over the steps, and its values at the given numbers.

    `steps` are measured rows by the number of things. There are no rows if the steps are too few for a line.
    """
    xs = list(steps)
    if len(xs) < LEAST:
        return {}
    fits = {field: LinearFit.compute(xs, [steps[x][field] for x in xs]) for field in fields}
    described = {
        f"line: each {UNIT:,} more": {field: round(fit.slope * UNIT, 3) for field, fit in fits.items()},
        "line: R²": {field: round(fit.r2, 3) for field, fit in fits.items()},
        "line: largest residual": {field: round(fit.residual, 2) for field, fit in fits.items()},
    }
    extrapolated = {
        f"{number:,}, extrapolated": {field: round(fit.at(number), 1) for field, fit in fits.items()}
        for number in numbers
        if number > max(xs)
    }
    return described | extrapolated
