"""Programs of bench/ with their smallest arguments, as far as they need no cluster; `make bench-smoke` runs all."""

import json
import os
import shutil
from pathlib import Path

import page
import pytest
import suite
from figures import render
from programs import BENCHMARKS, PARTS, Need, choose_smoke, list_programs

SECONDS = 200
"""Limit of one program. On an idle machine it takes less than ten seconds."""
WITHOUT_CLUSTER = {name: each for name, each in choose_smoke("").items() if each.need is Need.NOTHING}
WRAPPED = {"workspace.py": "unshare", "tls.py": "openssl", "record_transcripts.py": "git"}
"""Programs of the machine that some need."""


def test_every_program_is_tried_by_a_smoke_test() -> None:
    tried = {each.program for each in choose_smoke("").values()}
    assert tried | PARTS.keys() | {"suite.py"} == list_programs()
    assert set(PARTS.values()) <= tried


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
