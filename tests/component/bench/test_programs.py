"""The list of what runs each program of bench/, and those that need no cluster with their smallest arguments."""

import json
import os
import shutil
from pathlib import Path

import page
import pytest
import suite
from figures import render
from programs import BENCHMARKS, Need, choose_smoke, list_checks, list_programs
from tests.support.pace import paced

ROOT = Path(__file__).parents[3]
SECONDS = paced(200)
"""Limit of one program. On an idle machine it takes less than ten seconds."""
WITHOUT_CLUSTER = {name: each for name, each in choose_smoke("").items() if each.need is Need.NOTHING}
WRAPPED = {"workspace.py": "unshare", "record_transcripts.py": "git"}
"""Programs of the machine that some need."""


def test_every_program_is_run_by_a_check_that_exists() -> None:
    checks = list_checks()
    assert checks.keys() == list_programs()
    assert all(checks.values())
    for check in frozenset[str]().union(*checks.values()):
        target = check.removeprefix("make ")
        assert (ROOT / check).is_file() if target == check else f"\n{target}: " in (ROOT / "Makefile").read_text()


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("name", WITHOUT_CLUSTER)
def test_a_program_ends_with_its_smallest_arguments(name: str, tmp_path: Path) -> None:
    each, target = BENCHMARKS[name], tmp_path / "figures.json"
    if (needed := WRAPPED.get(each.program)) is not None and (shutil.which(needed) is None or os.getuid() != 0):
        pytest.skip(f"needs {needed} and root")
    environment = {**os.environ, "BENCH_OUT": str(tmp_path)}
    command = suite.build_command(name, each, smoke=True, target=target, environment=environment)
    done = suite.run_limited(command, seconds=SECONDS, capture=True, environment=environment)
    assert done.result == "done", done.output
    if each.program not in suite.NO_JSON:
        results = {name: json.loads(target.read_text())}
        for table, rows in page.read_tables(results).items():
            fields = {field for row in rows.values() for field in row}
            assert fields & set(page.TABLES[table].compared)
            assert len(render(page.TABLES[table], rows).splitlines()) >= 2 + len(rows)
