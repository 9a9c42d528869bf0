"""The run of all benchmarks: limits of time, and what is said of those that fail or can't run."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import suite
import tools
from programs import Benchmark, Need
from tests.support.pace import paced
from tests.support.until import eventually, until

IGNORES_SIGTERM = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
child.wait()
"""


def is_running(pid: int) -> bool:
    """Return whether a process exists and is more than an entry that nobody has read yet."""
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def run(code: str, *, seconds: float = 20) -> suite.Outcome:
    command = [sys.executable, "-c", code]
    return suite.run_limited(command, seconds=seconds, capture=True, environment=os.environ, end_seconds=0.1)


def test_a_program_that_never_ends_is_ended_with_all_that_it_started() -> None:
    found = run(IGNORES_SIGTERM, seconds=3)
    assert found.result == "failed: it did not end within 3 s"
    eventually(lambda: not is_running(int(found.output)))


def test_a_program_that_fails_is_shown_with_its_last_words() -> None:
    found = run("raise SystemExit('latency.py: waited 30 s for 3 warm pods, but had 1')")
    assert (found.result, found.output) == (
        "failed with status 1", "latency.py: waited 30 s for 3 warm pods, but had 1\n",
    )  # fmt: skip


async def test_a_process_of_the_product_gets_no_setting_of_whoever_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_EXEC_CACHE", "/nowhere")
    program = "import os, time; print([name for name in os.environ if 'MCP_EXEC' in name], flush=True); time.sleep(60)"
    log = tmp_path / "log"
    async with tools.run_process("-c", program, log=log, env={"MCP_EXEC_PORT": "1"}):
        await until(lambda: log.read_text().endswith("\n"))
        assert log.read_text() == "['MCP_EXEC_PORT']\n"


def test_figures_are_kept_if_the_pools_cannot_get_their_sizes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def kubectl(*words: str) -> str:
        if words[0] == "get":
            return '{"items": [{"metadata": {"name": "default"}, "spec": {"warm": {"min": 3}}}]}'
        if '"min": 3' in words[-1]:
            raise subprocess.CalledProcessError(1, ["kubectl", *words])
        return ""

    monkeypatch.setattr(suite, "kubectl", kubectl)
    with suite.quiet_pools():
        pass


def test_what_a_machine_lacks_is_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "RESULTS", tmp_path)
    chosen = {"writes": Benchmark(program="writes.py", need=Need.AUDIT), "levels": Benchmark(program="levels.py")}
    (tmp_path / "writes.json").write_text("{}")
    found = suite.run_all(chosen, smoke=True, environment={"PATH": os.environ["PATH"]})
    assert {name: each.result for name, each in found.items()} == {
        "writes": "skipped: BENCH_AUDIT_LOG is not set", "levels": "done",
    }  # fmt: skip
    assert list(suite.load_results(found)) == ["levels"], "no figures of an earlier run"


def test_the_run_ends_with_the_page_next_to_the_new_figures(capsys: pytest.CaptureFixture[str]) -> None:
    ways = {way: {"calls": 1, "p50 ms": 2.0, "p99 ms": 3.0, "calls/s": 9} for way in ("direct", "broker")}
    at_once = {"1": {"ways": ways, "ratio p50": 1.0, "ratio p99": 1.0, "ratio calls/s": 1.0}}
    recorded = {"tables": {"tools": {"rows": {"1": {"ratio p50": 2.0}}}}}
    suite.print_comparison({"tools": {"at once": at_once}}, recorded)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[-2:]] == [
        ["page", "now", "now", "/", "page"], ["tools,", "1:", "ratio", "p50", "2", "1", "0.50"],
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", [["--only", "speed"], ["--smoke", "--record"]])
def test_wrong_arguments_are_refused_before_anything_runs(arguments: list[str]) -> None:
    command = [sys.executable, str(suite.FOLDER / "suite.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=paced(60), check=False)
    assert done.returncode == 2
    assert "error: " in done.stderr


def test_make_bench_refuses_an_unknown_benchmark_before_it_makes_a_cluster(tmp_path: Path) -> None:
    environment = {**os.environ, "VENV": sys.prefix, "MCP_EXEC_CACHE": str(tmp_path)}
    command = [str(suite.ROOT / "hack" / "bench"), "--only", "speed"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=paced(60), check=False)
    assert done.returncode == 2
    assert "no benchmark speed" in done.stderr
    assert list(tmp_path.iterdir()) == []
