"""Lines through measured values, and what the tables of capacity show of them."""

import pytest
from fit import LinearFit, extend_rows


def test_a_line_goes_through_values_that_lie_on_one() -> None:
    fit = LinearFit.compute([0, 10, 20, 40], [5, 25, 45, 85])
    assert (fit.intercept, fit.slope, fit.r2, fit.residual) == pytest.approx((5, 2, 1, 0))
    assert fit.at(100) == pytest.approx(205)


def test_a_line_says_how_far_the_worst_value_is_from_it() -> None:
    fit = LinearFit.compute([0, 1, 2], [0, 3, 0])
    assert (fit.intercept, fit.slope, fit.r2, fit.residual) == pytest.approx((1, 0, 0, 2))


def test_equal_values_are_described_by_a_level_line() -> None:
    fit = LinearFit.compute([1, 2, 3], [7, 7, 7])
    assert (fit.slope, fit.r2, fit.residual) == pytest.approx((0, 1, 0))


@pytest.mark.parametrize(("xs", "ys"), [([1, 2], [1, 2]), ([1, 1, 2], [1, 2, 3]), ([1, 2, 3], [1, 2])])
def test_two_values_are_no_line(xs: list[float], ys: list[float]) -> None:
    with pytest.raises(ValueError, match="values at 3 different numbers"):
        LinearFit.compute(xs, ys)


def test_rows_of_a_line_say_what_is_extrapolated_and_how_well_the_line_fits() -> None:
    steps = {0: {"MB": 10.0, "s": 1.0}, 1000: {"MB": 14.0, "s": 9.0}, 2000: {"MB": 18.0, "s": 1.0}}
    rows = extend_rows(steps, fields=("MB",), numbers=(1000, 2000, 50_000))
    assert rows == {
        "line: each 1,000 more": {"MB": 4.0}, "line: R²": {"MB": 1.0}, "line: largest residual": {"MB": 0.0},
        "50,000, extrapolated": {"MB": 210.0},
    }  # fmt: skip


def test_a_number_that_was_measured_is_never_extrapolated() -> None:
    steps = {each: {"MB": float(each)} for each in (1, 2, 3)}
    assert not [label for label in extend_rows(steps, fields=("MB",), numbers=(2, 3)) if "extrapolated" in label]


def test_two_sizes_have_no_line() -> None:
    assert extend_rows({1: {"MB": 1.0}, 2: {"MB": 2.0}}, fields=("MB",), numbers=(10,)) == {}
