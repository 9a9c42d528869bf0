"""The page of values is generated from the table that the tests of the sandbox use."""

from hack.python_values.__main__ import PAGE, build_page
from hack.python_values.table import ROWS


def test_the_page_of_values_is_current() -> None:
    assert PAGE.read_text() == build_page(), "run `make generate`"


def test_the_page_has_a_row_for_each_value() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS) == len({row.python for row in ROWS})
