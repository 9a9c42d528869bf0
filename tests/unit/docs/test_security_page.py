"""docs/platform/security.md: each threat has a layer and tests that exist, each measure has a cost."""

import re
from pathlib import Path

import pytest
from tests.support.named_tests import ROOT, find_test_names, is_test

PAGE = (ROOT / "docs/platform/security.md").read_text()
SECTION = PAGE.partition("\n## Threats, layers and tests\n")[2].partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
    for line in SECTION.splitlines()
    if line.startswith("| ") and not line.startswith("| threat |")
]


def test_there_are_threats_in_every_section() -> None:
    for title in re.findall(r"^### (.+)$", SECTION, re.MULTILINE):
        table = SECTION.partition(f"### {title}\n")[2].partition("\n### ")[0]
        assert re.search(r"^\| (?!threat \|)", table, re.MULTILINE), f"{title} has no threat"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:80])
def test_every_threat_has_a_layer_and_a_test(row: list[str]) -> None:
    assert len(row) == 3, row
    assert all(row), "an empty cell"
    names = find_test_names(row[2])
    assert names, "no test"
    assert [name for name in names if not is_test(name)] == []


def test_every_measure_has_a_latency_and_a_cost() -> None:
    section = PAGE.partition("\n## Cost of the measures\n")[2].partition("\n## ")[0]
    rows = [line.strip().strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) > 1
    assert [row for row in rows if len(row) != 4 or not all(cell.strip() for cell in row)] == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(path: Path) -> None:
    assert [name for name in find_test_names(path.read_text()) if not is_test(name)] == []
