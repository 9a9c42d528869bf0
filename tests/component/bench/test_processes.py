"""Resource use of processes, as read from /proc."""

import os
import sys
from pathlib import Path

import pytest
from processes import ProcessEnded, ProcessMeter, child, cpu_seconds, resident_bytes


def test_a_process_has_used_time_and_holds_memory() -> None:
    assert cpu_seconds(os.getpid()) > 0
    assert resident_bytes(os.getpid()) > 1_000_000
    rows = ProcessMeter(pids={"self": os.getpid()}).rows()
    assert set(rows["self"]) == {"cpu s", "cores", "rss MB"}


async def test_a_child_says_its_word_and_ends_with_its_context(tmp_path: Path) -> None:
    code = "import signal; print('ready', flush=True); signal.pause()"
    async with child([sys.executable, "-c", code], environment=os.environ, log=tmp_path / "child.log") as running:
        await running.wait_for_line("ready")
        assert cpu_seconds(running.pid) >= 0
    assert running.process.returncode is not None


async def test_a_child_that_ends_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('it is broken')"]
    async with child(command, environment=os.environ, log=tmp_path / "child.log") as running:
        with pytest.raises(ProcessEnded, match="it is broken"):
            await running.wait_for_line("ready")
