"""The figures of the pages of measurements, and how a run of the benchmarks is compared with them."""

import json
import re
from pathlib import Path
from typing import Any

import page
import programs
import pytest
from figures import compare, render, show
from harness import summary

BY_HAND = ("| test | faults |",)
"""First lines of tables that no benchmark measures."""
TEXT = page.PAGE.read_text()
TEXTS = [path.read_text() for path in page.PAGES]
RECORDED = page.load_figures()
MACHINE = {"cores": 2}


def latency(ours: float, floor: float, *, concurrency: int = 1) -> dict[str, Any]:
    """Return the JSON of bench/latency.py with one sample."""
    rows = {"client, total": summary([ours]), "floor": summary([floor]), "  queued": summary([4.0])}
    found = {"summary": rows, "ratio": round(ours / floor, 2), "samples": {"total": [ours]}}
    return {"at": "now", "pool": "default", "place": "here", f"concurrency {concurrency}": found}


def test_the_pages_show_the_recorded_figures() -> None:
    assert [page.fill_page(text, RECORDED) for text in TEXTS] == TEXTS, "run: make bench RECORD=yes"
    blocks = [name for text in TEXTS for name in page.list_blocks(text)]
    assert sorted(blocks) == sorted(page.TABLES) == sorted(RECORDED["tables"])


@pytest.mark.parametrize("text", TEXTS, ids=[path.stem for path in page.PAGES])
def test_every_table_of_a_page_is_generated(text: str) -> None:
    lines = page.strip_blocks(text).splitlines()
    first = [line for before, line in zip(["", *lines], lines, strict=False) if line[:1] == "|" and before[:1] != "|"]
    assert [line for line in first if not line.startswith(BY_HAND)] == []


def test_no_figure_is_called_older_than_another() -> None:
    assert re.findall(r"\bolder\b|\bearlier run\b|\bwhen last measured\b", TEXT) == []


def test_a_table_names_benchmarks_that_exist_and_compares_fields_that_it_has() -> None:
    for name, table in page.TABLES.items():
        assert set(table.runs) <= programs.BENCHMARKS.keys(), name
        fields = {field for row in RECORDED["tables"][name]["rows"].values() for field in row}
        assert fields & set(table.compared), name


def test_all_benchmarks_of_the_page_of_performance_run_by_default() -> None:
    wanted = {name for table in page.list_blocks(TEXT) for name in page.TABLES[table].runs}
    assert wanted <= programs.choose("").keys()


def test_a_run_is_compared_by_its_ratio_to_the_floor() -> None:
    rows = page.read_tables({"latency": latency(20.0, 10.0)})["latency"]
    table, recorded = page.TABLES["latency"], {"1": {"p50": 5.0, "ratio p50": 1.6}}
    assert compare(table, recorded, rows) == [("1: ratio p50", 1.6, 2.0)]
    assert "| 1 | 1 | 20 / 20 / 20 | 10 / 10 / 10 | 2 | 2 |" in render(table, rows)


def test_a_table_is_recorded_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = [tmp_path / path.name for path in (*page.PAGES, page.FIGURES)]
    for path, copy in zip((*page.PAGES, page.FIGURES), copies, strict=True):
        copy.write_text(path.read_text())
    monkeypatch.setattr(page, "PAGES", copies[:-1])
    monkeypatch.setattr(page, "FIGURES", copies[-1])
    renewed = page.record({"latency": latency(20.0, 10.0), "writes": {"rows": {}}}, at="now", machine=MACHINE)
    assert renewed == ["latency", "stages"]
    found = json.loads(page.FIGURES.read_text())["tables"]
    assert list(found["latency"]["rows"]) == ["1"]
    assert {name: each for name, each in found.items() if name not in renewed} == {
        name: each for name, each in RECORDED["tables"].items() if name not in renewed
    }
    assert copies[0].read_text() == page.fill_page(TEXT, page.load_figures()) != TEXT
    assert copies[1].read_text() == TEXTS[1]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1134.4, "1,134"), (0.094, "0.094"), (109.26, "109"), (5.0, "5"), (13400, "13,400"), ("a", "a")],
)
def test_a_value_is_shown_with_three_digits(value: Any, shown: str) -> None:
    assert show(value) == shown


def test_benchmarks_are_chosen_by_name_and_an_unknown_name_lists_all() -> None:
    assert list(programs.choose("tools,latency")) == ["latency", "tools"]
    with pytest.raises(ValueError, match="no benchmark speed; they are latency, writes"):
        programs.choose("speed")
